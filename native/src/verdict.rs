//! Which records of a produced batch are refused, and the error texts;
//! `kernel/reference/verdict.py` gives the rules.

use crate::batch::{Header, NO_TIMESTAMP};
use crate::errors::{Fault, INVALID_RECORD, INVALID_TIMESTAMP, RecordFault, Result};

/// More than a thousand bad records do not help a client, and a hostile one sends millions.
const NAMED_MAX: usize = 1000;

/// Bounds that every timestamp meets,
const ALL: (i64, i64) = (i64::MIN, i64::MAX);
/// and bounds that none does.
const NONE: (i64, i64) = (1, 0);

/// The timestamps the records of a batch may carry.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The earliest and the latest allowed timestamp.
    pub allowed: (i64, i64),
    /// The one timestamp of all records, if the batch claims LogAppendTime.
    shared: Option<i64>,
    now_ms: i64,
    before_max_ms: i64,
    after_max_ms: i64,
}

impl Window {
    pub fn of(header: &Header, by_broker: bool, before_max_ms: i64, after_max_ms: i64, now_ms: i64) -> Self {
        let earliest = now_ms.saturating_sub(before_max_ms);
        let latest = now_ms.saturating_add(after_max_ms);
        let shared = header.is_log_append_time().then_some(header.max_timestamp);
        let allowed = match shared {
            Some(timestamp) if by_broker || timestamp == NO_TIMESTAMP => NONE,
            Some(timestamp) if (earliest..=latest).contains(&timestamp) => ALL,
            Some(_) => NONE,
            None if by_broker => ALL,
            None => (earliest, latest),
        };
        Self { allowed, shared, now_ms, before_max_ms, after_max_ms }
    }

    /// Of the batch, whose records' largest is `latest`.
    pub fn max_timestamp(&self, latest: i64) -> i64 {
        self.shared.unwrap_or(latest)
    }

    /// The error for a timestamp that is not allowed; None if it means that the record has none.
    fn fault(&self, index: i32, timestamp: i64) -> Option<String> {
        let timestamp = self.shared.unwrap_or(timestamp);
        if self.shared.is_none() && timestamp == NO_TIMESTAMP {
            return None;
        }
        let ahead = i128::from(timestamp) - i128::from(self.now_ms); // 128 bits: a distance of two numbers of 64.
        let (before, after) = (self.before_max_ms, self.after_max_ms);
        if ahead > i128::from(after) {
            return Some(format!(
                "timestamp {timestamp} of record {index} is {ahead} ms ahead of the broker; \
                 message.timestamp.after.max.ms allows {after}"
            ));
        }
        if -ahead > i128::from(before) && timestamp != NO_TIMESTAMP {
            return Some(format!(
                "timestamp {timestamp} of record {index} is {} ms behind the broker; \
                 message.timestamp.before.max.ms allows {before}",
                -ahead
            ));
        }
        Some(format!("record {index} claims LogAppendTime, which only the broker sets"))
    }
}

/// The records refused so far, each with one fault: a missing key takes precedence over a
/// timestamp, as in Kafka.
pub struct Faults {
    window: Window,
    named: Vec<(i16, RecordFault)>,
}

impl Faults {
    pub fn new(window: Window) -> Self {
        Self { window, named: Vec::new() }
    }

    #[cold]
    pub fn timestamp(&mut self, index: i32, timestamp: i64) -> Result<()> {
        match self.window.fault(index, timestamp) {
            Some(message) => self.name(index, INVALID_TIMESTAMP, message),
            None => Ok(()),
        }
    }

    #[cold]
    pub fn no_key(&mut self, index: i32) -> Result<()> {
        let message = format!("record {index} has no key; the topic is compacted (cleanup.policy)");
        self.name(index, INVALID_RECORD, message)
    }

    pub fn refuse_if_any(self) -> Result<()> {
        if self.named.is_empty() { Ok(()) } else { Err(self.refusal("")) }
    }

    /// Records come in order, so that one named already is the last.
    fn name(&mut self, batch_index: i32, error: i16, message: String) -> Result<()> {
        if self.named.last().is_some_and(|(_, last)| last.batch_index == batch_index) {
            self.named.pop();
        }
        if self.named.len() == NAMED_MAX {
            return Err(self.refusal(" at least"));
        }
        self.named.push((error, RecordFault { batch_index, message }));
        Ok(())
    }

    fn refusal(&self, at_least: &str) -> Fault {
        let any_timestamp = self.named.iter().any(|(error, _)| *error == INVALID_TIMESTAMP);
        let count = self.named.len();
        let mut text = self.named.first().map(|(_, fault)| fault.message.clone()).unwrap_or_default();
        if count > 1 {
            text += &format!(" ({count} records are refused{at_least})");
        }
        Fault::Invalid {
            error: if any_timestamp { INVALID_TIMESTAMP } else { INVALID_RECORD },
            text,
            records: self.named.iter().map(|(_, fault)| fault.clone()).collect(),
        }
    }
}
