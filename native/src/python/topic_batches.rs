//! `TopicBatches`.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyList, PyTuple};

use super::batch::NamedTuple;
use super::errors::to_python;
use super::{LONG_COMPRESSED, LONG_PLAIN, call};
use crate::arrow_ffi::{ArrowArray, ArrowSchema};
use crate::arrow_rows::Rows;
use crate::batch::{Codec, NO_PRODUCER_ID};
use crate::topic_batches::{self, Built, PARTITIONS_MAX, Plan};

static BUILT_BATCH: NamedTuple = NamedTuple::new("ottla.kernel.values", "BuiltBatch");
const NO_PRODUCER_EPOCH: i16 = -1;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TopicBatches>()
}

/// The batches of one topic that rows are gathered into, one for each partition.
#[pyclass(module = "ottla.kernel")]
struct TopicBatches(topic_batches::TopicBatches);

#[pymethods]
impl TopicBatches {
    #[new]
    #[pyo3(signature = (partitions, *, batch_bytes, codec=Codec::None, level=None, producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH, transactional=false, first=0, round_robin=false))]
    #[expect(clippy::too_many_arguments, reason = "they are the fields of a plan")]
    fn new(
        partitions: i64,
        batch_bytes: i64,
        codec: Codec,
        level: Option<i32>,
        producer_id: i64,
        producer_epoch: i16,
        transactional: bool,
        first: i64,
        round_robin: bool,
    ) -> PyResult<Self> {
        if !(1..=PARTITIONS_MAX as i64).contains(&partitions) {
            let text = format!("{partitions} partitions; a topic has 1 to {PARTITIONS_MAX}");
            return Err(PyValueError::new_err(text));
        }
        if batch_bytes < 1 || first < 0 {
            let text = format!("batch_bytes is {batch_bytes} and first is {first}; choose at least 1 and 0");
            return Err(PyValueError::new_err(text));
        }
        let plan = Plan {
            partitions: partitions as usize,
            batch_bytes: batch_bytes as usize,
            codec,
            level,
            producer_id,
            producer_epoch,
            transactional,
            round_robin,
        };
        Ok(Self(topic_batches::TopicBatches::new(plan, first as usize)))
    }

    /// Bytes of the rows that wait for more, before compression.
    #[getter]
    fn held_bytes(&self) -> usize {
        self.0.held_bytes()
    }

    /// Take rows, which speak Arrow's C data interface; the batches that became complete.
    #[pyo3(signature = (rows, *, now_ms))]
    fn add<'py>(&mut self, py: Python<'py>, rows: &Bound<'py, PyAny>, now_ms: i64) -> PyResult<Bound<'py, PyList>> {
        let (schema, array) =
            rows.call_method0("__arrow_c_array__")?.extract::<(Bound<'_, PyCapsule>, Bound<'_, PyCapsule>)>()?;
        // SAFETY: the names say what the capsules hold. Both are held until this function returns; nobody else knows
        // them, so nobody moves the structures out of them meanwhile.
        let rows = unsafe {
            let schema = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<ArrowSchema>().as_ref();
            let array = array.pointer_checked(Some(c"arrow_array"))?.cast::<ArrowArray>().as_ref();
            Rows::of(schema, array).map_err(|fault| to_python(py, fault))?
        };
        let long = self.is_long(rows.size());
        let built = call(py, long, || self.0.add(&rows, now_ms))?;
        to_list(py, &built)
    }

    /// All batches that hold anything, by partition.
    fn flush<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let long = self.is_long(self.0.held_bytes());
        let built = call(py, long, || self.0.flush())?;
        to_list(py, &built)
    }
}

impl TopicBatches {
    fn is_long(&self, size: usize) -> bool {
        size >= if self.0.compresses() { LONG_COMPRESSED } else { LONG_PLAIN }
    }
}

fn to_list<'py>(py: Python<'py>, built: &[Built]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for batch in built {
        let members = PyTuple::new(
            py,
            [
                batch.partition.into_bound_py_any(py)?,
                batch.records.into_bound_py_any(py)?,
                PyBytes::new(py, &batch.data).into_any(),
            ],
        )?;
        list.append(BUILT_BATCH.make(py, members)?)?;
    }
    Ok(list)
}
