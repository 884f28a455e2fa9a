//! `BatchBuilder`, `build_batch` and `murmur2`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use super::buffer::Bytes;
use super::errors::to_python;
use super::{LONG_COMPRESSED, LONG_PLAIN, call, guarded};
use crate::batch::{Codec, HEADER_SIZE, NO_LEADER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, attributes_of};
use crate::encode::{Builder, NO_HEADERS, Origin, write_field};
use crate::errors::Fault;
use crate::{murmur, varint};

const NO_PRODUCER_EPOCH: i16 = -1;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<BatchBuilder>()?;
    module.add_function(wrap_pyfunction!(build_batch, module)?)?;
    module.add_function(wrap_pyfunction!(murmur2, module)?)
}

#[pyfunction]
fn murmur2(data: &Bound<'_, PyAny>) -> PyResult<u32> {
    Ok(match Field::of(data)? {
        Field::Null => return Err(PyValueError::new_err("a record without a key has no hash")),
        Field::Bytes(bytes) => murmur::murmur2(bytes),
        Field::Buffer(buffer) => murmur::murmur2(buffer.as_slice()),
    })
}

/// A batch that grows record by record.
#[pyclass(module = "ottla.kernel")]
struct BatchBuilder {
    builder: Builder,
    /// The encoded headers of the record being added: kept for its memory.
    headers: Vec<u8>,
}

#[pymethods]
impl BatchBuilder {
    #[new]
    #[pyo3(signature = (base_offset=0, *, base_timestamp=None))]
    fn new(base_offset: i64, base_timestamp: Option<i64>) -> Self {
        Self { builder: Builder::new(base_offset, base_timestamp), headers: Vec::new() }
    }

    #[getter]
    fn base_offset(&self) -> i64 {
        self.builder.base_offset
    }

    #[getter]
    fn count(&self) -> i32 {
        self.builder.count
    }

    /// Bytes of the records before compression.
    #[getter]
    fn records_size(&self) -> usize {
        self.builder.records_size()
    }

    #[getter]
    fn last_offset_delta(&self) -> i32 {
        self.builder.last_offset_delta
    }

    #[getter]
    fn max_timestamp(&self) -> i64 {
        self.builder.max_timestamp
    }

    /// Bytes of the batch were it built now without compression.
    #[getter]
    fn size(&self) -> usize {
        HEADER_SIZE + self.builder.records_size()
    }

    /// Add a record at the next offset; the bytes it took.
    #[pyo3(signature = (timestamp, key, value, headers=None))]
    fn append(
        &mut self,
        timestamp: i64,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        self.add(i64::from(self.builder.last_offset_delta) + 1, timestamp, key, value, headers)
    }

    /// Add a record at a later offset than the last one's; the bytes it took.
    #[pyo3(signature = (offset_delta, timestamp, key, value, headers=None))]
    fn append_at(
        &mut self,
        offset_delta: i64,
        timestamp: i64,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        self.add(offset_delta, timestamp, key, value, headers)
    }

    /// Add records, each a tuple of at least timestamp, key, value and headers, at the next offsets.
    fn extend(&mut self, records: &Bound<'_, PyAny>) -> PyResult<()> {
        for record in records.try_iter()? {
            let record = record?;
            let record = record.cast::<PyTuple>()?;
            let [timestamp, key, value, headers] = items(record, 0)?;
            let next = i64::from(self.builder.last_offset_delta) + 1;
            self.add(next, timestamp.extract()?, &key, &value, Some(&headers))?;
        }
        Ok(())
    }

    /// The batch. `attributes` default to those of plain data in `codec`.
    #[pyo3(signature = (*, codec=Codec::None, level=None, leader_epoch=NO_LEADER_EPOCH, producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH, base_sequence=NO_SEQUENCE, attributes=None, append_time_ms=None,
        last_offset_delta=None))]
    #[expect(clippy::too_many_arguments, reason = "they are the fields of a header")]
    fn build<'py>(
        &self,
        py: Python<'py>,
        codec: Codec,
        level: Option<i32>,
        leader_epoch: i32,
        producer_id: i64,
        producer_epoch: i16,
        base_sequence: i32,
        attributes: Option<i16>,
        append_time_ms: Option<i64>,
        last_offset_delta: Option<i32>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let origin = Origin {
            leader_epoch,
            producer_id,
            producer_epoch,
            base_sequence,
            attributes,
            append_time_ms,
            last_offset_delta,
        };
        finish(py, &self.builder, codec, level, &origin)
    }
}

impl BatchBuilder {
    fn add(
        &mut self,
        offset_delta: i64,
        timestamp: i64,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let (of_key, of_value) = (Field::of(key)?, Field::of(value)?);
        let headers = match headers {
            Some(headers) => encode_headers(headers, &mut self.headers)?,
            None => NO_HEADERS,
        };
        let (py, builder) = (key.py(), &mut self.builder);
        guarded(py, || {
            builder
                .append(offset_delta, timestamp, of_key.as_slice(), of_value.as_slice(), headers)
                .map_err(|fault| to_python(py, fault))
        })
    }
}

/// A batch of `records` at their offsets. Without `base_offset` the first record's offset is the base.
#[pyfunction]
#[pyo3(signature = (records, *, base_offset=None, codec=Codec::None, level=None, leader_epoch=NO_LEADER_EPOCH,
    producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH, base_sequence=NO_SEQUENCE, transactional=false,
    control=false, timestamp_type=0, append_time_ms=NO_TIMESTAMP, delete_horizon_ms=None, last_offset=None))]
#[expect(clippy::too_many_arguments, reason = "they are the fields of a header")]
fn build_batch<'py>(
    py: Python<'py>,
    records: &Bound<'py, PyAny>,
    base_offset: Option<i64>,
    codec: Codec,
    level: Option<i32>,
    leader_epoch: i32,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    transactional: bool,
    control: bool,
    timestamp_type: i16,
    append_time_ms: i64,
    delete_horizon_ms: Option<i64>,
    last_offset: Option<i64>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut builder: Option<BatchBuilder> = None;
    for record in records.try_iter()? {
        let record = record?;
        let record = record.cast::<PyTuple>()?;
        let offset = record.get_item(0)?.extract::<i64>()?;
        let [timestamp, key, value, headers] = items(record, 1)?;
        let builder =
            builder.get_or_insert_with(|| BatchBuilder::new(base_offset.unwrap_or(offset), delete_horizon_ms));
        let delta = offset.saturating_sub(builder.builder.base_offset);
        builder.add(delta, timestamp.extract()?, &key, &value, Some(&headers))?;
    }
    let Some(BatchBuilder { builder, .. }) = builder else {
        return Err(PyValueError::new_err("a batch needs a record"));
    };
    let by_broker = timestamp_type != 0;
    let last_offset_delta = match last_offset.map(|last| i32::try_from(last.saturating_sub(builder.base_offset))) {
        Some(Ok(delta)) => Some(delta),
        Some(Err(_)) => return Err(PyValueError::new_err("the last offset is too far from the base offset")),
        None => None,
    };
    let origin = Origin {
        leader_epoch,
        producer_id,
        producer_epoch,
        base_sequence,
        attributes: Some(attributes_of(codec, by_broker, transactional, control, delete_horizon_ms.is_some())),
        append_time_ms: by_broker.then_some(append_time_ms),
        last_offset_delta,
    };
    finish(py, &builder, codec, level, &origin)
}

/// The bytes of the batch, written once where Python keeps them.
fn finish<'py>(
    py: Python<'py>,
    builder: &Builder,
    codec: Codec,
    level: Option<i32>,
    origin: &Origin,
) -> PyResult<Bound<'py, PyBytes>> {
    let size = builder.records_size();
    let long = size >= LONG_PLAIN || codec != Codec::None && size >= LONG_COMPRESSED;
    let (header, packed) = call(py, long, || {
        let packed = builder.pack(codec, level)?;
        Ok((builder.header(codec, &packed, origin).pack(), packed))
    })?;
    PyBytes::new_with(py, HEADER_SIZE + packed.len(), |out| {
        out[..HEADER_SIZE].copy_from_slice(&header);
        out[HEADER_SIZE..].copy_from_slice(&packed);
        Ok(())
    })
}

/// A key or a value: nearly always `bytes`, of which nothing but a pointer and a length is taken.
enum Field<'a> {
    Null,
    Bytes(&'a [u8]),
    Buffer(Bytes),
}

impl<'a> Field<'a> {
    #[inline]
    fn of(object: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.as_bytes()));
        }
        if object.is_none() {
            return Ok(Self::Null);
        }
        object.extract().map(Self::Buffer)
    }

    #[inline]
    fn as_slice(&self) -> Option<&[u8]> {
        match self {
            Self::Null => None,
            Self::Bytes(bytes) => Some(bytes),
            Self::Buffer(buffer) => Some(buffer.as_slice()),
        }
    }
}

fn items<'py>(record: &Bound<'py, PyTuple>, first: usize) -> PyResult<[Bound<'py, PyAny>; 4]> {
    Ok([record.get_item(first)?, record.get_item(first + 1)?, record.get_item(first + 2)?, record.get_item(first + 3)?])
}

/// Headers with their count, encoded into `out`.
fn encode_headers<'a>(headers: &Bound<'_, PyAny>, out: &'a mut Vec<u8>) -> PyResult<&'a [u8]> {
    let count = match headers.cast::<PyTuple>() {
        Ok(headers) => headers.len(),
        Err(_) => headers.len()?,
    };
    if count == 0 {
        return Ok(NO_HEADERS);
    }
    out.clear();
    varint::write(out, count as i64);
    let mut written = 0;
    for header in headers.try_iter()? {
        let (name, value) = header?.extract::<(Bound<'_, PyString>, Bound<'_, PyAny>)>()?;
        write_field(out, Some(name.to_cow()?.as_bytes()));
        write_field(out, Field::of(&value)?.as_slice());
        written += 1;
    }
    if written != count {
        let text = format!("{count} headers were promised, {written} given");
        return Err(to_python(headers.py(), Fault::Mistake(text)));
    }
    Ok(out)
}
