//! `read_columns` and its `Columns`.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PyList, PyString, PyTuple, PyType};

use super::buffer::Bytes;
use super::decode::{aborted_of, damage_of};
use super::{LONG_COMPRESSED, call};
use crate::arrow::{self, BATCH_BYTES_MAX, BYTES_MAX, Binary, COLUMNS_BYTES_MAX, Part};
use crate::arrow_ffi;
use crate::decode_fetched::{Aborted, Walk};

static PART_END: PyOnceLock<Py<PyType>> = PyOnceLock::new();

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Columns>()?;
    module.add_function(wrap_pyfunction!(read_columns, module)?)
}

/// A `FetchedPart` with its bytes held.
struct Given {
    partition: i32,
    data: Bytes,
    position: i64,
    aborted: Vec<Aborted>,
}

/// The records of `parts` as columns.
#[pyfunction]
#[pyo3(signature = (parts, *, bytes_max=BYTES_MAX))]
fn read_columns(py: Python<'_>, parts: &Bound<'_, PyAny>, bytes_max: usize) -> PyResult<Columns> {
    if !(1..=COLUMNS_BYTES_MAX).contains(&bytes_max) {
        let text = format!("bytes_max is {bytes_max}; choose 1 to {COLUMNS_BYTES_MAX}");
        return Err(PyValueError::new_err(text));
    }
    let mut given = parts.try_iter()?.map(|part| given_of(&part?)).collect::<PyResult<Vec<_>>>()?;
    let size = given.iter().map(|part| part.data.len()).sum::<usize>();
    let (columns, walks) = call(py, size >= LONG_COMPRESSED, || {
        let mut parts: Vec<Part<'_>> = given
            .iter_mut()
            .map(|part| Part {
                partition: part.partition,
                data: part.data.as_slice(),
                walk: Walk::new(part.position, std::mem::take(&mut part.aborted), BATCH_BYTES_MAX),
            })
            .collect();
        let columns = arrow::read_columns(&mut parts, bytes_max);
        Ok((columns, parts.into_iter().map(|part| part.walk).collect::<Vec<_>>()))
    })?;
    let part_end = PART_END.import(py, "ottla.kernel.values", "PartEnd")?;
    let ends = PyList::empty(py);
    for walk in walks {
        let damage = damage_of(py, walk.damage.as_ref())?;
        ends.append(part_end.call1((walk.next_offset, damage, walk.needed, walk.finished))?)?;
    }
    Ok(Columns { columns: Arc::new(columns), ends: ends.unbind() })
}

fn given_of(part: &Bound<'_, PyAny>) -> PyResult<Given> {
    let part = part.cast::<PyTuple>()?;
    Ok(Given {
        partition: part.get_item(0)?.extract()?,
        data: part.get_item(1)?.extract()?,
        position: part.get_item(2)?.extract()?,
        aborted: aborted_of(&part.get_item(3)?)?,
    })
}

/// The columns of some records, and the end of each part they came from.
#[pyclass(frozen, module = "ottla.kernel")]
struct Columns {
    columns: Arc<arrow::Columns>,
    #[pyo3(get)]
    ends: Py<PyList>,
}

#[pymethods]
impl Columns {
    fn __len__(&self) -> usize {
        self.columns.count()
    }

    /// Capsules of an ArrowSchema and an ArrowArray. A schema asked for is not heeded, as the interface allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        let schema = PyCapsule::new_with_value(py, arrow_ffi::schema(), c"arrow_schema")?;
        let array = PyCapsule::new_with_value(py, arrow_ffi::array(&self.columns), c"arrow_array")?;
        Ok((schema, array))
    }

    /// The columns as lists; a record's headers are a list of (name, value) pairs.
    fn to_pydict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = &self.columns;
        let out = PyDict::new(py);
        out.set_item("partition", PyList::new(py, &columns.partition)?)?;
        out.set_item("offset", PyList::new(py, &columns.offset)?)?;
        out.set_item("timestamp", PyList::new(py, &columns.timestamp)?)?;
        out.set_item("timestamp_type", PyList::new(py, &columns.timestamp_type)?)?;
        out.set_item("key", PyList::new(py, (0..columns.key.count()).map(|at| bytes(py, &columns.key, at)))?)?;
        out.set_item("value", PyList::new(py, (0..columns.value.count()).map(|at| bytes(py, &columns.value, at)))?)?;
        let headers = columns.header_ends.windows(2).map(|ends| {
            let pairs = (ends[0] as usize..ends[1] as usize).map(|at| {
                let name = columns.header_key.get(at).unwrap_or_default();
                (PyString::new(py, &String::from_utf8_lossy(name)), bytes(py, &columns.header_value, at))
            });
            PyList::new(py, pairs.collect::<Vec<_>>())
        });
        out.set_item("headers", PyList::new(py, headers.collect::<PyResult<Vec<_>>>()?)?)?;
        Ok(out)
    }
}

fn bytes<'py>(py: Python<'py>, column: &Binary, index: usize) -> Option<Bound<'py, PyBytes>> {
    column.get(index).map(|bytes| PyBytes::new(py, bytes))
}
