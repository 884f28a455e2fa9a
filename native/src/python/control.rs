//! `read_control` and `read_end_txn_marker`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyType};

use super::batch::NamedTuple;
use super::buffer::Bytes;
use super::call;
use crate::batch::{NO_LEADER_EPOCH, NO_SEQUENCE};
use crate::control;
use crate::encode::Origin;

static CONTROL_TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static END_TXN_MARKER: NamedTuple = NamedTuple::new("ottla.kernel.control", "EndTxnMarker");

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(build_end_txn_marker, module)?)?;
    module.add_function(wrap_pyfunction!(read_control, module)?)?;
    module.add_function(wrap_pyfunction!(read_end_txn_marker, module)?)
}

#[pyfunction]
#[pyo3(signature = (
    control_type, coordinator_epoch, *, timestamp, producer_id, producer_epoch,
    base_offset=0, leader_epoch=NO_LEADER_EPOCH
))]
#[expect(clippy::too_many_arguments, reason = "the reference's signature")]
fn build_end_txn_marker(
    py: Python<'_>,
    control_type: i16,
    coordinator_epoch: i32,
    timestamp: i64,
    producer_id: i64,
    producer_epoch: i16,
    base_offset: i64,
    leader_epoch: i32,
) -> PyResult<Bound<'_, PyBytes>> {
    let origin = Origin {
        leader_epoch,
        producer_id,
        producer_epoch,
        base_sequence: NO_SEQUENCE,
        attributes: None,
        append_time_ms: None,
        last_offset_delta: None,
    };
    let batch = call(py, false, || {
        control::build_end_txn_marker(control_type, coordinator_epoch, timestamp, base_offset, origin)
    })?;
    Ok(PyBytes::new(py, &batch))
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
