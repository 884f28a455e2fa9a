//! `read_records` and `RecordReader`.

use std::borrow::Cow;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple, PyType};

use super::buffer::Bytes;
use super::errors::to_python;
use super::{LONG_COMPRESSED, call, guarded, is_long};
use crate::batch::{HEADER_SIZE, Header};
use crate::decode::{Place, Span, Spans, headers_of, records_of};
use crate::decode_fetched::{Aborted, Damage, Walk};
use crate::errors::Result;

static RECORD: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static DAMAGE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RecordReader>()?;
    module.add_function(wrap_pyfunction!(read_records, module)?)
}

/// All records of the batch at `position`.
#[pyfunction]
#[pyo3(signature = (buffer, header=None, position=0))]
fn read_records<'py>(
    py: Python<'py>,
    buffer: Bytes,
    header: Option<Header>,
    position: usize,
) -> PyResult<Bound<'py, PyList>> {
    let header = match header {
        Some(header) => header,
        None => Header::read(buffer.as_slice(), position).map_err(|fault| to_python(py, fault))?,
    };
    let records = call(py, is_long(&header), || {
        let records = records_of(buffer.as_slice(), &header, position)?;
        sound(&records, &header, i64::MIN)?;
        Ok(records)
    })?;
    let out = PyList::empty(py);
    let mut maker = Maker::new(py)?;
    guarded(py, || maker.make(&records, &header, Place::default(), i64::MIN, usize::MAX, &out))?;
    Ok(out)
}

/// Whether there is a record from `position` on; refuses what `Spans` refuses.
fn sound(records: &[u8], header: &Header, position: i64) -> Result<bool> {
    let mut spans = Spans::new(records, header)?;
    let mut any = false;
    while let Some(span) = spans.next()? {
        any |= span.offset >= position;
    }
    Ok(any)
}

/// Whether a record from `position` on is still to come.
fn any_from(mut spans: Spans<'_>, position: i64) -> Result<bool> {
    while let Some(span) = spans.next()? {
        if span.offset >= position {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The records of a partition's answer from `position` on, read as they are taken.
#[pyclass(module = "ottla.kernel")]
struct RecordReader {
    data: Bytes,
    walk: Walk,
    position: i64,
    batch: Option<Batch>,
    /// Where to go on after what was taken.
    #[pyo3(get)]
    next_offset: i64,
}

/// The batch whose records are being taken, and how far they are.
struct Batch {
    header: Header,
    /// None: they lie uncompressed in the bytes that were fetched, from `start` on.
    records: Option<Vec<u8>>,
    start: usize,
    place: Place,
}

#[pymethods]
impl RecordReader {
    #[new]
    #[pyo3(signature = (data, position, aborted=None))]
    fn new(data: Bytes, position: i64, aborted: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let aborted = aborted.map_or_else(|| Ok(Vec::new()), aborted_of)?;
        let walk = Walk::new(position, aborted, usize::MAX);
        Ok(Self { data, walk, position, batch: None, next_offset: position })
    }

    /// What lies beyond the last record, once somebody asked for more than there is.
    #[getter]
    fn damage<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        damage_of(py, self.walk.damage.as_ref())
    }

    /// Size of the first batch, when that is larger than all that was fetched; known as damage is.
    #[getter]
    fn needed(&self) -> usize {
        self.walk.needed
    }

    /// The next records, `limit` at most; fewer only at the end or before a damaged batch.
    #[pyo3(signature = (limit=i64::MAX))]
    fn take<'py>(&mut self, py: Python<'py>, limit: i64) -> PyResult<Bound<'py, PyList>> {
        let limit = usize::try_from(limit).unwrap_or(0);
        let out = PyList::empty(py);
        let mut maker = Maker::new(py)?;
        while out.len() < limit && self.unpack(py)? {
            let Some(batch) = &mut self.batch else { break };
            let data = self.data.as_slice();
            let records = batch.records.as_deref().unwrap_or_else(|| plain(data, batch.start, &batch.header));
            let left = limit - out.len();
            let (place, last) =
                guarded(py, || maker.make(records, &batch.header, batch.place, self.position, left, &out))?;
            match place {
                Some(place) => {
                    batch.place = place;
                    self.next_offset = last.saturating_add(1);
                }
                None => self.batch = None,
            }
        }
        if self.batch.is_none() {
            self.next_offset = self.walk.next_offset;
        }
        Ok(out)
    }
}

impl RecordReader {
    /// Whether there is a record to take.
    fn unpack(&mut self, py: Python<'_>) -> PyResult<bool> {
        if self.batch.is_none() {
            let (walk, data) = (&mut self.walk, &self.data);
            self.batch = call(py, data.len() >= LONG_COMPRESSED, || {
                let data = data.as_slice();
                Ok(walk.next(data, |header, records, position| {
                    if !sound(&records, header, position)? {
                        return Ok(None);
                    }
                    let (records, start) = match records {
                        Cow::Borrowed(records) => (None, records.as_ptr() as usize - data.as_ptr() as usize),
                        Cow::Owned(records) => (Some(records), 0),
                    };
                    Ok(Some(Batch { header: *header, records, start, place: Place::default() }))
                }))
            })?;
        }
        Ok(self.batch.is_some())
    }
}

fn plain<'a>(data: &'a [u8], start: usize, header: &Header) -> &'a [u8] {
    data.get(start..start + header.size() - HEADER_SIZE).unwrap_or_default()
}

pub fn aborted_of(aborted: &Bound<'_, PyAny>) -> PyResult<Vec<Aborted>> {
    aborted
        .try_iter()?
        .map(|one| {
            let (first_offset, producer_id) = one?.extract()?;
            Ok(Aborted { first_offset, producer_id })
        })
        .collect()
}

pub fn damage_of<'py>(py: Python<'py>, damage: Option<&Damage>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(damage) = damage else { return Ok(None) };
    let made = DAMAGE.import(py, "ottla.kernel.values", "Damage")?;
    made.call1((damage.offset, damage.next_offset, damage.reason.as_str())).map(Some)
}

/// Makes `Record`s.
struct Maker<'py> {
    py: Python<'py>,
    record: &'py Bound<'py, PyType>,
    /// Records of one batch often share a timestamp; they then share the object, too.
    timestamp: (i64, Bound<'py, PyAny>),
}

const FIELDS: ffi::Py_ssize_t = 5;

impl<'py> Maker<'py> {
    fn new(py: Python<'py>) -> PyResult<Self> {
        let record = RECORD.import(py, "ottla.kernel.values", "Record")?;
        Ok(Self { py, record, timestamp: (0, 0_i64.into_pyobject(py)?.into_any()) })
    }

    /// Append up to `limit` records from `place` on to `out`, leaving out those before `position`.
    ///
    /// Where to go on, None at the end, and the offset of the last one made.
    fn make(
        &mut self,
        records: &[u8],
        header: &Header,
        place: Place,
        position: i64,
        limit: usize,
        out: &Bound<'py, PyList>,
    ) -> PyResult<(Option<Place>, i64)> {
        let py = self.py;
        let fail = |fault| to_python(py, fault);
        let mut spans = Spans::from(records, header, place).map_err(fail)?;
        let (mut made, mut last) = (0, -1);
        while let Some(span) = spans.next().map_err(fail)? {
            if span.offset < position {
                continue;
            }
            out.append(self.record(&span)?)?;
            (made, last) = (made + 1, span.offset);
            if made == limit {
                let more = any_from(spans.clone(), position).map_err(fail)?;
                return Ok((more.then(|| spans.place()), last));
            }
        }
        Ok((None, last))
    }

    fn record(&mut self, span: &Span<'_>) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        if self.timestamp.0 != span.timestamp {
            self.timestamp = (span.timestamp, span.timestamp.into_pyobject(py)?.into_any());
        }
        let fields = [
            span.offset.into_pyobject(py)?.into_any(),
            self.timestamp.1.clone(),
            self.bytes(span.key),
            self.bytes(span.value),
            self.headers(span.headers)?,
        ];
        // SAFETY: `Record` is a subclass of tuple without fields of its own (a NamedTuple), for which GenericAlloc makes
        // a tuple of `FIELDS` empty places; it is new and nobody else's, as SetItem needs, which takes each reference
        // over and cannot fail for a place inside. This is what tuple.__new__(Record, ...) does, without the tuple it
        // copies. The collector is told to forget the record, as it does itself for tuples it finds to hold nothing
        // that could lead back to them: numbers, bytes, and tuples of strings and bytes.
        unsafe {
            let record = ffi::PyType_GenericAlloc(self.record.as_type_ptr(), FIELDS);
            if record.is_null() {
                return Err(PyErr::fetch(py));
            }
            for (at, field) in fields.into_iter().enumerate() {
                ffi::PyTuple_SetItem(record, at as ffi::Py_ssize_t, field.into_ptr());
            }
            ffi::PyObject_GC_UnTrack(record.cast());
            Ok(Bound::from_owned_ptr(py, record))
        }
    }

    fn bytes(&self, field: Option<&[u8]>) -> Bound<'py, PyAny> {
        field.map_or_else(|| self.py.None().into_bound(self.py), |bytes| PyBytes::new(self.py, bytes).into_any())
    }

    fn headers(&self, headers: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        if headers.len() <= 1 {
            return Ok(PyTuple::empty(self.py).into_any());
        }
        let made = headers_of(headers)
            // Brokers store names unseen; one that is not UTF-8 is shown as Java shows it.
            .map(|(name, value)| (PyString::new(self.py, &String::from_utf8_lossy(name)), self.bytes(value)))
            .collect::<Vec<_>>();
        Ok(PyTuple::new(self.py, made)?.into_any())
    }
}
