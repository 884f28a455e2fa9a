//! `OffsetMap`, `put_keys` and `filter_batch`: compaction.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyTuple};

use super::batch::NamedTuple;
use super::buffer::{Bytes, part_of};
use super::{call, is_long};
use crate::batch::{Header, NO_TIMESTAMP};
use crate::compact::{self, Left, Options};
use crate::offset_map::OffsetMap;

static FILTERED: NamedTuple = NamedTuple::new("ottla.kernel.values", "Filtered");

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyOffsetMap>()?;
    module.add_function(wrap_pyfunction!(put_keys, module)?)?;
    module.add_function(wrap_pyfunction!(filter_batch, module)?)
}

/// The last offset of every key, in bounded memory.
#[pyclass(name = "OffsetMap", module = "ottla.kernel")]
struct PyOffsetMap(OffsetMap);

#[pymethods]
impl PyOffsetMap {
    #[new]
    #[pyo3(signature = (memory_bytes, load_factor=0.9))]
    fn new(py: Python<'_>, memory_bytes: i64, load_factor: f64) -> PyResult<Self> {
        call(py, false, || OffsetMap::new(memory_bytes, load_factor)).map(Self)
    }

    #[getter]
    fn slots(&self) -> usize {
        self.0.slots()
    }

    #[getter]
    fn keys_max(&self) -> usize {
        self.0.keys_max()
    }

    #[getter]
    fn latest_offset(&self) -> i64 {
        self.0.latest_offset
    }

    #[setter]
    fn set_latest_offset(&mut self, offset: i64) {
        self.0.latest_offset = offset;
    }

    #[getter]
    fn full(&self) -> bool {
        self.0.is_full()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn put(&mut self, key: Bytes, offset: i64) -> bool {
        self.0.put(key.as_slice(), offset)
    }

    fn get(&self, key: Bytes) -> i64 {
        self.0.get(key.as_slice())
    }
}

#[pyfunction]
#[pyo3(signature = (offset_map, buffer, header, position=0, from_offset=0))]
fn put_keys(
    py: Python<'_>,
    mut offset_map: PyRefMut<'_, PyOffsetMap>,
    buffer: Bytes,
    header: Header,
    position: usize,
    from_offset: i64,
) -> PyResult<bool> {
    let map = &mut offset_map.0;
    call(py, is_long(&header), || compact::put_keys(map, buffer.as_slice(), &header, position, from_offset))
}

#[pyfunction]
#[pyo3(signature = (
    buffer, position, header, *, keep, now_ms, delete_retention_ms,
    discard=false, retain_empty=false, marks_empty_txn=false
))]
#[expect(clippy::too_many_arguments, reason = "the reference's signature")]
fn filter_batch<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
    position: usize,
    header: Header,
    keep: PyRef<'py, PyOffsetMap>,
    now_ms: i64,
    delete_retention_ms: i64,
    discard: bool,
    retain_empty: bool,
    marks_empty_txn: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let bytes: Bytes = buffer.extract()?;
    let options = Options { now_ms, delete_retention_ms, discard, retain_empty, marks_empty_txn };
    let map = &keep.0;
    let filtered =
        call(py, is_long(&header), || compact::filter_batch(bytes.as_slice(), position, &header, map, &options))?;
    let batch = match &filtered.left {
        Left::Nothing => py.None().into_bound(py),
        Left::Unchanged => {
            let end = position + header.size();
            part_of(&PyMemoryView::from(buffer)?, position, end)?
        }
        Left::Rewritten(batch) => PyBytes::new(py, batch).into_any(),
    };
    // For the time index: the last offset of the batch that is left.
    let offset_of_max = if filtered.max_timestamp == NO_TIMESTAMP { -1 } else { header.last_offset() };
    let members = [
        batch,
        filtered.records_kept.into_bound_py_any(py)?,
        filtered.records_dropped.into_bound_py_any(py)?,
        filtered.max_timestamp.into_bound_py_any(py)?,
        offset_of_max.into_bound_py_any(py)?,
    ];
    FILTERED.make(py, PyTuple::new(py, members)?)
}
