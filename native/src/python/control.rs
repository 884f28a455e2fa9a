//! `read_control` and `read_end_txn_marker`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyType};

use super::batch::NamedTuple;
use super::buffer::Bytes;
use super::call;
use crate::control;

static CONTROL_TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static END_TXN_MARKER: NamedTuple = NamedTuple::new("ottla.kernel.control", "EndTxnMarker");

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(read_control, module)?)?;
    module.add_function(wrap_pyfunction!(read_end_txn_marker, module)?)
}

#[pyfunction]
#[pyo3(signature = (buffer, position=0))]
fn read_control<'py>(
    py: Python<'py>,
    buffer: Bytes,
    position: usize,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyBytes>)> {
    let (kind, value) = call(py, false, || control::read_control(buffer.as_slice(), position))?;
    Ok((control_type(py, kind)?, PyBytes::new(py, &value)))
}

#[pyfunction]
#[pyo3(signature = (buffer, position=0))]
fn read_end_txn_marker(py: Python<'_>, buffer: Bytes, position: usize) -> PyResult<Bound<'_, PyAny>> {
    let (kind, coordinator_epoch) = call(py, false, || control::read_end_txn_marker(buffer.as_slice(), position))?;
    END_TXN_MARKER.make(py, (control_type(py, kind)?, coordinator_epoch).into_pyobject(py)?)
}

fn control_type(py: Python<'_>, number: i16) -> PyResult<Bound<'_, PyAny>> {
    CONTROL_TYPE.import(py, "ottla.kernel.control", "ControlType")?.call1((number,))
}
