//! `Run`: the batches of Produce requests that are alike.

use std::ops::Range;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PyTuple};

use super::batch::header_to_python;
use super::buffer::{Bytes, part_of};
use super::{LONG_PLAIN, call};
use crate::produce::Rules;
use crate::produce_run::{self, Room, Taken};

/// Where it stands in an answer.
const CORRELATION_ID: Range<usize> = 4..8;
/// Bytes of base offset, log append time and log start offset.
const CHANGES: usize = 3 * size_of::<i64>();

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Run>()
}

impl<'a, 'py> FromPyObject<'a, 'py> for Room {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let (bytes, batches, latest_timestamp, last_offset) = object.extract()?;
        Ok(Self { bytes, batches, latest_timestamp, last_offset })
    }
}

#[pyclass(module = "ottla.kernel")]
struct Run {
    run: produce_run::Run,
    log_start_offset: i64,
    may_begin: Py<PyAny>,
    /// Stamped, where they arrived.
    #[pyo3(get)]
    batches: Py<PyList>,
    /// Of all the batches.
    #[pyo3(get)]
    size: usize,
}

#[pymethods]
impl Run {
    #[new]
    #[allow(clippy::too_many_arguments)] // As the reference has them.
    fn new(
        py: Python<'_>,
        rules: Rules,
        room: Room,
        now_ms: i64,
        base_offset: i64,
        leader_epoch: i32,
        log_start_offset: i64,
        may_begin: Py<PyAny>,
    ) -> Self {
        let run = produce_run::Run { rules, room, now_ms, next_offset: base_offset, leader_epoch, headers: Vec::new() };
        Self { run, log_start_offset, may_begin, batches: PyList::empty(py).unbind(), size: 0 }
    }

    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let headers: Vec<_> =
            self.run.headers.iter().map(|header| header_to_python(py, header)).collect::<PyResult<_>>()?;
        PyList::new(py, headers)
    }

    #[getter]
    fn next_offset(&self) -> i64 {
        self.run.next_offset
    }

    fn take<'py>(
        &mut self,
        py: Python<'py>,
        data: &Bound<'py, PyMemoryView>,
        position: usize,
        exchange: &Bound<'py, PyTuple>,
    ) -> PyResult<Option<(usize, Bound<'py, PyBytes>)>> {
        let (pattern, answer, changes_at): (Bound<'_, PyBytes>, Bound<'_, PyBytes>, usize) = exchange.extract()?;
        let after_changes = changes_at.checked_add(CHANGES);
        if changes_at < CORRELATION_ID.end || after_changes.is_none_or(|end| end > answer.as_bytes().len()) {
            return Err(PyValueError::new_err(format!("what changes has no place at {changes_at} of the answer")));
        }
        let mut bytes: Bytes = data.extract()?;
        let long = bytes.len().saturating_sub(position) >= LONG_PLAIN;
        let pattern = pattern.as_bytes();
        let (found, end) = call(py, long, || Ok(self.run.find(bytes.as_slice(), position, pattern)))?;
        let Some(first) = found.first() else { return Ok(None) };
        if first.header.has_producer() && self.run.last_of(&first.header).is_none() {
            let asked = self.may_begin.bind(py).call1((header_to_python(py, &first.header)?,))?;
            if !asked.extract::<bool>()? {
                return Ok(None);
            }
        }
        let answers = self.answers(py, &found, answer.as_bytes(), changes_at)?;
        let batches = self.batches.bind(py);
        for Taken { batch_at, header, .. } in &found {
            bytes.write(py, *batch_at, &header.pack())?;
            let batch_end = batch_at + header.size();
            batches.append(part_of(data, *batch_at, batch_end)?)?;
            self.size += header.size();
        }
        self.run.add(&found);
        Ok(Some((end, answers)))
    }
}

impl Run {
    /// The answer to each request, one after the other: `answer` with what changes put into it.
    fn answers<'py>(
        &self,
        py: Python<'py>,
        found: &[Taken],
        answer: &[u8],
        changes_at: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, found.len() * answer.len(), |answers| {
            for (Taken { correlation_id, header, .. }, own) in found.iter().zip(answers.chunks_exact_mut(answer.len()))
            {
                own.copy_from_slice(answer);
                own[CORRELATION_ID].copy_from_slice(&correlation_id.to_be_bytes());
                let changes = [header.base_offset, header.append_time(), self.log_start_offset];
                own[changes_at..changes_at + CHANGES].copy_from_slice(changes.map(i64::to_be_bytes).as_flattened());
            }
            Ok(())
        })
    }
}
