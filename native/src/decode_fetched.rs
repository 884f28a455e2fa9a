//! The batches of fetched bytes that hold records to give out; `kernel/reference/fetched.py` gives the rules.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::batch::Header;
use crate::control::{ABORT, read_control};
use crate::decode::{check_claims, records_of};
use crate::errors::{Fault, Result};
use crate::scan::{First, first};

/// An aborted transaction that begins in, or reaches into, what was fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Aborted {
    pub first_offset: i64,
    pub producer_id: i64,
}

/// A batch that cannot be read. `next_offset` is the first one after it, as far as can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub offset: i64,
    pub next_offset: i64,
    pub reason: String,
}

/// Iterates over the batches of one partition's response. It does not hold the bytes: they are
/// passed at every step.
#[derive(Debug)]
pub struct Walk {
    /// The offset after the batches read so far.
    pub next_offset: i64,
    pub damage: Option<Damage>,
    /// Size of the first batch, if it is larger than all that was fetched.
    pub needed: usize,
    pub finished: bool,
    position: i64,
    at: usize,
    batch_bytes_max: usize,
    aborted: AbortFilter,
}

impl Walk {
    pub fn new(position: i64, aborted: Vec<Aborted>, batch_bytes_max: usize) -> Self {
        Self {
            next_offset: position,
            damage: None,
            needed: 0,
            finished: false,
            position,
            at: 0,
            batch_bytes_max,
            aborted: AbortFilter::new(aborted),
        }
    }

    /// The result of `visit` for the next batch with a record at the position or later; None at the
    /// end.
    pub fn next<'a, T>(
        &mut self,
        data: &'a [u8],
        mut visit: impl FnMut(&Header, Cow<'a, [u8]>, i64) -> Result<Option<T>>,
    ) -> Option<T> {
        while !self.finished {
            let header = self.scan(data)?;
            match self.visit(&header, data, &mut visit) {
                Ok(found) => {
                    self.next_offset = self.next_offset.max(next_offset(&header));
                    self.at += header.size();
                    if found.is_some() {
                        return found;
                    }
                }
                Err(fault) => self.damaged(after(&header, self.next_offset), text_of(fault)),
            }
        }
        None
    }

    fn visit<'a, T>(
        &mut self,
        header: &Header,
        data: &'a [u8],
        visit: &mut impl FnMut(&Header, Cow<'a, [u8]>, i64) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        if !self.passes(header, data)? {
            return Ok(None);
        }
        let records = records_of(data, header, self.at)?;
        if records.len() > self.batch_bytes_max {
            let (size, most) = (records.len(), self.batch_bytes_max);
            return Fault::corrupt(format!("the batch holds {size} bytes of records; columns take {most} at most"));
        }
        visit(header, records, self.position)
    }

    /// Batches before the position are filtered too: their markers end transactions named in the
    /// response.
    fn passes(&mut self, header: &Header, data: &[u8]) -> Result<bool> {
        let due = next_offset(header) > self.position;
        if due {
            check_claims(header)?;
        }
        match self.aborted.lets_pass(header, data, self.at) {
            Err(_) if !due => Ok(false),
            passes => passes.map(|passes| passes && due),
        }
    }

    /// The header of the next whole batch; None, with the reason recorded, if there is none.
    fn scan(&mut self, data: &[u8]) -> Option<Header> {
        let rest = data.get(self.at..).unwrap_or_default();
        match first(rest, true) {
            First::Batch(header) => return Some(header),
            First::End(needed) => {
                self.finished = true;
                if self.at == 0 {
                    self.needed = needed;
                }
            }
            First::Fault(text) => {
                let word = Header::read(rest, 0).map(|header| after(&header, self.next_offset));
                self.damaged(word.unwrap_or_else(|_| self.next_offset.saturating_add(1)), text);
            }
        }
        None
    }

    fn damaged(&mut self, next_offset: i64, reason: String) {
        self.damage = Some(Damage { offset: self.next_offset, next_offset, reason });
        self.finished = true;
    }
}

/// Tells which batches belong to aborted transactions, while the log is read in order.
#[derive(Debug)]
struct AbortFilter {
    /// The earliest last.
    to_come: Vec<Aborted>,
    open: HashSet<i64>,
}

impl AbortFilter {
    fn new(mut aborted: Vec<Aborted>) -> Self {
        aborted.sort_unstable_by(|one, other| other.cmp(one));
        Self { to_come: aborted, open: HashSet::new() }
    }

    fn lets_pass(&mut self, header: &Header, data: &[u8], at: usize) -> Result<bool> {
        while self.to_come.last().is_some_and(|next| next.first_offset <= last_offset(header)) {
            self.open.extend(self.to_come.pop().map(|begun| begun.producer_id));
        }
        let open = self.open.contains(&header.producer_id);
        if header.is_control() {
            if open && read_control(data, at)?.0 == ABORT {
                self.open.remove(&header.producer_id);
            }
            return Ok(false);
        }
        Ok(!(header.is_transactional() && open))
    }
}

/// The offset after a damaged batch: from its header, if that is plausible.
fn after(header: &Header, position: i64) -> i64 {
    let sane = check_claims(header).is_ok() && header.last_offset_delta >= 0 && position <= last_offset(header);
    if sane { next_offset(header) } else { position.saturating_add(1) }
}

fn last_offset(header: &Header) -> i64 {
    header.base_offset.saturating_add(i64::from(header.last_offset_delta))
}

fn next_offset(header: &Header) -> i64 {
    last_offset(header).saturating_add(1)
}

fn text_of(fault: Fault) -> String {
    match fault {
        Fault::Corrupt(text) | Fault::Bomb(text) | Fault::Mistake(text) => text,
        Fault::Invalid { text, .. } | Fault::Refused { text, .. } => text,
        Fault::Long => "the batch takes long to check".into(), // Of produced batches only.
    }
}
