//! `check_produced` and `stamp`: the way of a produced batch.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyMemoryView, PyTuple};

use super::batch::{NamedTuple, header_to_python};
use super::buffer::Bytes;
use super::{LONG_COMPRESSED, LONG_PLAIN, call};
use crate::batch::{ATTRIBUTES_AT, CODEC_MASK, LEADER_EPOCH_AT};
use crate::produce::{self, Checked, Rules};

static CHECKED: NamedTuple = NamedTuple::new("ottla.kernel.values", "Checked");

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(check_produced, module)?)?;
    module.add_function(wrap_pyfunction!(stamp, module)?)
}

impl<'a, 'py> FromPyObject<'a, 'py> for Rules {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let fields = object.cast::<PyTuple>()?;
        Ok(Self {
            compacted: fields.get_item(0)?.extract()?,
            log_append_time: fields.get_item(1)?.extract::<i64>()? != 0,
            timestamp_before_max_ms: fields.get_item(2)?.extract()?,
            timestamp_after_max_ms: fields.get_item(3)?.extract()?,
            codec: fields.get_item(4)?.extract()?,
            level: fields.get_item(5)?.extract()?,
            max_message_bytes: fields.get_item(6)?.extract()?,
            from_client: fields.get_item(7)?.extract()?,
            at_once_max: fields.get_item(8)?.extract()?,
        })
    }
}

#[pyfunction]
fn check_produced<'py>(
    py: Python<'py>,
    buffer: &Bound<'py, PyAny>,
    rules: Rules,
    now_ms: i64,
) -> PyResult<Bound<'py, PyAny>> {
    let mut bytes: Bytes = buffer.extract()?;
    let plain =
        rules.codec.is_none() && bytes.as_slice().get(ATTRIBUTES_AT + 1).is_none_or(|low| low & CODEC_MASK as u8 == 0);
    let long = bytes.len() >= if plain { LONG_PLAIN } else { LONG_COMPRESSED };
    let checked = call(py, long, || produce::check_produced(bytes.as_slice(), &rules, now_ms))?;
    let (header, rebuilt) = match &checked {
        Checked::AsSent(header) => (header, None),
        Checked::WithHeader(header) => {
            bytes.write(py, 0, &header.pack())?;
            (header, None)
        }
        Checked::Rebuilt(header, batch) => (header, Some(PyByteArray::new(py, batch).into_any())),
    };
    let recompressed = rebuilt.is_some();
    let batch = PyMemoryView::from(rebuilt.as_ref().unwrap_or(buffer))?;
    let members = [
        batch.into_any(),
        header_to_python(py, header)?,
        header.max_timestamp.into_bound_py_any(py)?,
        produce::offset_delta_of_max_timestamp(header).into_bound_py_any(py)?,
        recompressed.into_bound_py_any(py)?,
    ];
    CHECKED.make(py, PyTuple::new(py, members)?)
}

#[pyfunction]
fn stamp(py: Python<'_>, mut buffer: Bytes, position: usize, base_offset: i64, leader_epoch: i32) -> PyResult<()> {
    buffer.write(py, position.saturating_add(LEADER_EPOCH_AT), &leader_epoch.to_be_bytes())?;
    buffer.write(py, position, &base_offset.to_be_bytes())
}
