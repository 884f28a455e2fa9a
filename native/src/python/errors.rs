//! A `Fault` as the exception of `ottla.kernel.errors` it stands for.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyType};

use crate::errors::Fault;

static CORRUPT_BATCH: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static TAKES_LONG: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static INVALID_RECORDS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static RECORD_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static REFUSED: PyOnceLock<Py<PyType>> = PyOnceLock::new();

pub fn to_python(py: Python<'_>, fault: Fault) -> PyErr {
    exception(py, fault).unwrap_or_else(|error| error)
}

fn exception(py: Python<'_>, fault: Fault) -> PyResult<PyErr> {
    let kernel = "ottla.kernel.errors";
    let wire = "ottla.wire.errors";
    let made = match fault {
        Fault::Corrupt(text) | Fault::Bomb(text) => CORRUPT_BATCH.import(py, kernel, "CorruptBatch")?.call1((text,))?,
        Fault::Invalid { error, text, records } => {
            let record_error = RECORD_ERROR.import(py, kernel, "RecordError")?;
            let records = records
                .into_iter()
                .map(|record| record_error.call1((record.batch_index, record.message)))
                .collect::<PyResult<Vec<_>>>()?;
            let error = ERROR.import(py, wire, "Error")?.call1((error,))?;
            let records = PyList::new(py, records)?;
            INVALID_RECORDS.import(py, kernel, "InvalidRecords")?.call1((error, text, records))?
        }
        Fault::Refused { error, text } => {
            let error = ERROR.import(py, wire, "Error")?.call1((error,))?;
            REFUSED.import(py, wire, "Refused")?.call1((error, text))?
        }
        Fault::Long => TAKES_LONG.import(py, kernel, "TakesLong")?.call0()?,
        Fault::Mistake(text) => return Ok(PyValueError::new_err(text)),
    };
    Ok(PyErr::from_value(made))
}
