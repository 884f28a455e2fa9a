//! `take_produce_requests`: the way of a Produce request.

use std::collections::HashMap;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMemoryView, PyTuple};

use super::batch::{NamedTuple, header_to_python};
use super::buffer::{Bytes, part_of};
use super::{LONG_PLAIN, call};
use crate::batch::Header;
use crate::produce::Rules;
use crate::produce_request::{Budget, Place, Request, Sequence, add_answer, check, outline};

static PRODUCE_PLACE: NamedTuple = NamedTuple::new("ottla.kernel.values", "ProducePlace");

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(take_produce_requests, module)?)
}

/// Where the requests end, the answers to them, what each partition got, and what has to be known first.
type Taken<'py> = (usize, Bound<'py, PyBytes>, Bound<'py, PyList>, Bound<'py, PyList>);

#[pyfunction]
#[allow(clippy::too_many_arguments)] // As the reference has them.
fn take_produce_requests<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyMemoryView>,
    position: usize,
    by_name: &Bound<'py, PyDict>,
    by_id: &Bound<'py, PyDict>,
    now_ms: i64,
    batches_max: usize,
    bytes_max: usize,
) -> PyResult<Taken<'py>> {
    let mut bytes: Bytes = data.extract()?;
    let mut taking = Taking::default();
    let asks = PyList::empty(py);
    let (mut at, mut batches, mut budget) = (position, 0, Budget { bytes: bytes_max });
    while batches < batches_max {
        let Some(request) = call(py, false, || Ok(outline(bytes.as_slice(), at)))? else { break };
        let known = if request.names_ids() { by_id } else { by_name };
        let Some((rules, parts)) = taking.find(py, bytes.as_slice(), &request, known, &asks)? else {
            asks.call_method0("clear")?; // Nothing that may be known helps.
            break;
        };
        if !asks.is_empty() {
            break;
        }
        let long = request.end - at >= LONG_PLAIN;
        let found = call(py, long, || Ok(check(bytes.as_slice(), &request, &rules, now_ms, &mut budget)))?;
        let Some(found) = found else { break };
        if !taking.add(bytes.as_slice(), &request, &parts, found) {
            break;
        }
        at = request.end;
        batches += parts.len();
    }
    if at > position {
        asks.call_method0("clear")?;
    }
    for part in &taking.parts {
        for (batch_at, header) in &part.batches {
            bytes.write(py, *batch_at, &header.pack())?;
        }
    }
    let parts = PyList::empty(py);
    for part in taking.parts.iter().filter(|part| !part.batches.is_empty()) {
        parts.append(part.to_python(py, data, &taking.topics[part.topic].topic)?)?;
    }
    Ok((at, PyBytes::new(py, &taking.answers), parts, asks))
}

/// What is known of the requests so far.
#[derive(Default)]
struct Taking<'py> {
    topics: Vec<Topic<'py>>,
    parts: Vec<Part<'py>>,
    part_of: HashMap<(usize, i32), usize>,
    answers: Vec<u8>,
}

struct Topic<'py> {
    name: Vec<u8>,
    by_id: bool,
    /// The first one with the same places: a topic may be named by its name and by its id.
    number: usize,
    rules: Rules,
    places: Bound<'py, PyDict>,
    /// What the caller knows it by.
    topic: Bound<'py, PyAny>,
}

/// A partition.
struct Part<'py> {
    topic: usize,
    index: i32,
    place: Place,
    sequences: Bound<'py, PyDict>,
    /// Those that were looked up or have changed.
    known: Vec<(i64, Sequence)>,
    /// Where each stands, and the header that it gets.
    batches: Vec<(usize, Header)>,
}

/// The rules of a request's topics, and the number of each of its partitions.
type Found = Option<(Vec<Rules>, Vec<usize>)>;

impl<'py> Taking<'py> {
    /// None if the request cannot be taken. What has to be known first is added to `asks`.
    fn find(
        &mut self,
        py: Python<'py>,
        data: &[u8],
        request: &Request,
        known: &Bound<'py, PyDict>,
        asks: &Bound<'py, PyList>,
    ) -> PyResult<Found> {
        let (mut rules, mut parts) = (Vec::with_capacity(1), Vec::with_capacity(request.batches()));
        for topic in &request.topics {
            let Some(number) = self.topic(py, &data[topic.name.clone()], request.names_ids(), known)? else {
                return Ok(None);
            };
            rules.push(self.topics[number].rules);
            let number = self.topics[number].number;
            for partition in &topic.partitions {
                let Some(header) = Header::parse(&data[partition.records.clone()]) else { return Ok(None) };
                let part = self.part(number, partition.index)?;
                if let Some(part) = part {
                    parts.push(part);
                    if !header.has_producer() || self.parts[part].knows(&header)? {
                        continue;
                    }
                }
                let Header { producer_id, producer_epoch, base_sequence, .. } = header;
                let topic = &self.topics[number].topic;
                asks.append((topic, partition.index, producer_id, producer_epoch, base_sequence))?;
            }
        }
        Ok(Some((rules, parts)))
    }

    fn topic(
        &mut self,
        py: Python<'py>,
        name: &[u8],
        by_id: bool,
        known: &Bound<'py, PyDict>,
    ) -> PyResult<Option<usize>> {
        let same = |topic: &Topic<'_>| topic.by_id == by_id && topic.name == name;
        if let Some(number) = self.topics.iter().position(same) {
            return Ok(Some(number));
        }
        let Some(found) = known.get_item(PyBytes::new(py, name))? else { return Ok(None) };
        let (rules, places, topic): (Rules, Bound<'py, PyDict>, Bound<'py, PyAny>) = found.extract()?;
        let number = self.topics.iter().position(|other| other.places.is(&places)).unwrap_or(self.topics.len());
        self.topics.push(Topic { name: name.to_vec(), by_id, number, rules, places, topic });
        Ok(Some(self.topics.len() - 1))
    }

    fn part(&mut self, topic: usize, index: i32) -> PyResult<Option<usize>> {
        if let Some(part) = self.part_of.get(&(topic, index)) {
            return Ok(Some(*part));
        }
        let Some(found) = self.topics[topic].places.get_item(index)? else { return Ok(None) };
        let fields = found.cast::<PyTuple>()?;
        let place = Place {
            next_offset: fields.get_item(0)?.extract()?,
            leader_epoch: fields.get_item(1)?.extract()?,
            log_start_offset: fields.get_item(2)?.extract()?,
            bytes_left: fields.get_item(3)?.extract()?,
            batches_left: fields.get_item(4)?.extract()?,
            latest_timestamp: fields.get_item(5)?.extract()?,
            offset_max: fields.get_item(6)?.extract()?,
        };
        let sequences = fields.get_item(7)?.extract()?;
        self.parts.push(Part { topic, index, place, sequences, known: Vec::new(), batches: Vec::new() });
        self.part_of.insert((topic, index), self.parts.len() - 1);
        Ok(Some(self.parts.len() - 1))
    }

    /// Whether all the batches of the request have a place; they are added then, and the answer.
    fn add(&mut self, data: &[u8], request: &Request, parts: &[usize], mut headers: Vec<Header>) -> bool {
        if !parts.iter().zip(&headers).all(|(part, header)| self.parts[*part].takes(header)) {
            return false;
        }
        let mut offsets = Vec::with_capacity(parts.len());
        let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
        for ((part, header), partition) in parts.iter().zip(&mut headers).zip(partitions) {
            let part = &mut self.parts[*part];
            part.place.number(header);
            if header.has_producer() {
                part.set(header.producer_id, Sequence::after(header));
            }
            part.batches.push((partition.records.start, *header));
            offsets.push([header.base_offset, header.append_time(), part.place.log_start_offset]);
        }
        add_answer(&mut self.answers, data, request, &offsets);
        true
    }
}

impl<'py> Part<'py> {
    /// Whether it is known what the producer of the batch sends next.
    fn knows(&mut self, header: &Header) -> PyResult<bool> {
        if self.known.iter().any(|(producer_id, _)| *producer_id == header.producer_id) {
            return Ok(true);
        }
        let Some(found) = self.sequences.get_item(header.producer_id)? else { return Ok(false) };
        let (epoch, next) = found.extract()?;
        self.known.push((header.producer_id, Sequence { epoch, next }));
        Ok(true)
    }

    fn set(&mut self, producer_id: i64, sequence: Sequence) {
        for (known, next) in &mut self.known {
            if *known == producer_id {
                *next = sequence;
            }
        }
    }

    fn takes(&self, header: &Header) -> bool {
        let expected = (header.producer_id, Sequence::of(header));
        self.place.takes(header) && (!header.has_producer() || self.known.contains(&expected))
    }

    fn to_python(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyMemoryView>,
        topic: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let (headers, views) = (PyList::empty(py), PyList::empty(py));
        for (at, header) in &self.batches {
            headers.append(header_to_python(py, header)?)?;
            views.append(part_of(data, *at, *at + header.size())?)?;
        }
        let Place { next_offset, leader_epoch, log_start_offset, .. } = self.place;
        let Place { bytes_left, batches_left, latest_timestamp, offset_max, .. } = self.place;
        let place = PyTuple::new(
            py,
            [
                next_offset.into_bound_py_any(py)?,
                leader_epoch.into_bound_py_any(py)?,
                log_start_offset.into_bound_py_any(py)?,
                bytes_left.into_bound_py_any(py)?,
                batches_left.into_bound_py_any(py)?,
                latest_timestamp.into_bound_py_any(py)?,
                offset_max.into_bound_py_any(py)?,
                self.sequences.clone().into_any(),
            ],
        )?;
        let place = PRODUCE_PLACE.make(py, place)?;
        let known: Vec<_> = self.known.iter().map(|(id, Sequence { epoch, next })| (*id, *epoch, *next)).collect();
        (topic, self.index, place, headers, views, known).into_pyobject(py)
    }
}
