//! `compress` and `decompress`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::buffer::Bytes;
use super::{LONG_COMPRESSED, call};
use crate::batch::Codec;
use crate::codec;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(compress, module)?)?;
    module.add_function(wrap_pyfunction!(decompress, module)?)
}

impl<'a, 'py> FromPyObject<'a, 'py> for Codec {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let number = object.extract::<i64>()?;
        Self::of(number).ok_or_else(|| PyValueError::new_err(format!("compression {number} is not known; 0 to 4 are")))
    }
}

#[pyfunction]
#[pyo3(signature = (codec, data, level=None))]
fn compress<'py>(py: Python<'py>, codec: Codec, data: Bytes, level: Option<i32>) -> PyResult<Bound<'py, PyBytes>> {
    let out = call(py, data.len() >= LONG_COMPRESSED, || codec::compress(codec, data.as_slice(), level))?;
    Ok(PyBytes::new(py, &out))
}

#[pyfunction]
#[pyo3(signature = (codec, data, *, limit=codec::LIMIT, ratio=codec::RATIO))]
fn decompress<'py>(
    py: Python<'py>,
    codec: Codec,
    data: Bytes,
    limit: usize,
    ratio: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let long = data.len() >= LONG_COMPRESSED;
    let out = call(py, long, || codec::decompress(codec, data.as_slice(), limit, ratio))?;
    Ok(PyBytes::new(py, &out))
}
