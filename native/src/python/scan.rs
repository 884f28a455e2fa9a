//! `scan`, `batch_crc`, `crc_ok` and `find_time`: what the log asks of bytes it has.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::batch::{NamedTuple, header_to_python};
use super::buffer::Bytes;
use super::{LONG_PLAIN, call, is_long};
use crate::batch::{ATTRIBUTES_AT, CRC_AT, Header};
use crate::{crc, lookup, scan as scanning};

static SCAN: NamedTuple = NamedTuple::new("ottla.kernel.values", "Scan");

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(scan, module)?)?;
    module.add_function(wrap_pyfunction!(batch_crc, module)?)?;
    module.add_function(wrap_pyfunction!(crc_ok, module)?)?;
    module.add_function(wrap_pyfunction!(find_time, module)?)
}

#[pyfunction]
#[pyo3(signature = (buffer, *, check_crc=true))]
fn scan(py: Python<'_>, buffer: Bytes, check_crc: bool) -> PyResult<Bound<'_, PyAny>> {
    let found = call(py, buffer.len() >= LONG_PLAIN, || Ok(scanning::scan(buffer.as_slice(), check_crc)))?;
    let headers = found.headers.iter().map(|header| header_to_python(py, header)).collect::<PyResult<Vec<_>>>()?;
    let members = (PyList::new(py, headers)?, found.consumed, found.needed, found.fault);
    SCAN.make(py, members.into_pyobject(py)?)
}

#[pyfunction]
fn batch_crc(py: Python<'_>, buffer: Bytes, position: usize, size: usize) -> PyResult<u32> {
    call(py, size >= LONG_PLAIN, || Ok(crc::crc32c(part(buffer.as_slice(), position, ATTRIBUTES_AT, size))))
}

#[pyfunction]
fn crc_ok(py: Python<'_>, buffer: Bytes, position: usize, size: usize) -> PyResult<bool> {
    call(py, size >= LONG_PLAIN, || {
        let carried = part(buffer.as_slice(), position, CRC_AT, ATTRIBUTES_AT);
        let carried = carried.iter().fold(0u32, |crc, byte| crc << 8 | u32::from(*byte));
        Ok(carried == crc::crc32c(part(buffer.as_slice(), position, ATTRIBUTES_AT, size)))
    })
}

#[pyfunction]
#[pyo3(signature = (buffer, position, target_ms, start_offset=0, header=None))]
fn find_time<'py>(
    py: Python<'py>,
    buffer: Bytes,
    position: usize,
    target_ms: i64,
    start_offset: i64,
    header: Option<Header>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let header = match header {
        Some(header) => header,
        None => call(py, false, || Header::read(buffer.as_slice(), position))?,
    };
    let found = call(py, is_long(&header), || {
        lookup::find_time(buffer.as_slice(), &header, position, target_ms, start_offset)
    })?;
    found.map(|found| found.into_pyobject(py)).transpose()
}

/// The bytes from `start` to `end` of the batch at `position`, as many of them as there are.
fn part(buffer: &[u8], position: usize, start: usize, end: usize) -> &[u8] {
    let end = position.saturating_add(end).min(buffer.len());
    buffer.get(position.saturating_add(start)..end).unwrap_or_default()
}
