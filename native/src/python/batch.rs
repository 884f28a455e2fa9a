//! Headers, and the named tuples of `ottla.kernel.values`, from Rust to Python and back.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

use crate::batch::Header;

static TUPLE_NEW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static BATCH_HEADER: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// A type that is imported once, when it is first needed.
pub struct NamedTuple {
    module: &'static str,
    name: &'static str,
    imported: PyOnceLock<Py<PyType>>,
}

impl NamedTuple {
    pub const fn new(module: &'static str, name: &'static str) -> Self {
        Self { module, name, imported: PyOnceLock::new() }
    }

    /// The named tuple with these members. As its `_make`, in a fraction of the time.
    pub fn make<'py>(&self, py: Python<'py>, members: Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        make(py, self.imported.import(py, self.module, self.name)?, members)
    }
}

fn make<'py>(py: Python<'py>, class: &Bound<'py, PyType>, members: Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let new = TUPLE_NEW.get_or_try_init(py, || py.get_type::<PyTuple>().getattr("__new__").map(Bound::unbind))?;
    new.bind(py).call1((class, members))
}

pub fn header_to_python<'py>(py: Python<'py>, header: &Header) -> PyResult<Bound<'py, PyAny>> {
    let members = PyTuple::new(
        py,
        [
            header.base_offset.into_bound_py_any(py)?,
            header.length.into_bound_py_any(py)?,
            header.leader_epoch.into_bound_py_any(py)?,
            header.magic.into_bound_py_any(py)?,
            header.crc.into_bound_py_any(py)?,
            header.attributes.into_bound_py_any(py)?,
            header.last_offset_delta.into_bound_py_any(py)?,
            header.base_timestamp.into_bound_py_any(py)?,
            header.max_timestamp.into_bound_py_any(py)?,
            header.producer_id.into_bound_py_any(py)?,
            header.producer_epoch.into_bound_py_any(py)?,
            header.base_sequence.into_bound_py_any(py)?,
            header.count.into_bound_py_any(py)?,
        ],
    )?;
    make(py, BATCH_HEADER.import(py, "ottla.kernel.batch", "BatchHeader")?, members)
}

impl<'a, 'py> FromPyObject<'a, 'py> for Header {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let fields = object.cast::<PyTuple>()?;
        Ok(Self {
            base_offset: fields.get_item(0)?.extract()?,
            length: fields.get_item(1)?.extract()?,
            leader_epoch: fields.get_item(2)?.extract()?,
            magic: fields.get_item(3)?.extract()?,
            crc: fields.get_item(4)?.extract()?,
            attributes: fields.get_item(5)?.extract()?,
            last_offset_delta: fields.get_item(6)?.extract()?,
            base_timestamp: fields.get_item(7)?.extract()?,
            max_timestamp: fields.get_item(8)?.extract()?,
            producer_id: fields.get_item(9)?.extract()?,
            producer_epoch: fields.get_item(10)?.extract()?,
            base_sequence: fields.get_item(11)?.extract()?,
            count: fields.get_item(12)?.extract()?,
        })
    }
}
