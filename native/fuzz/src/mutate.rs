//! Inputs: sound batches, and what hostile hands make of them.
//!
//! Rule 1: half of the inputs get a right length and checksum again, so that they reach the walk over the records.
//! Rule 2: some are mutated under the compression: unpacked, changed, packed.

use ottla_kernel::batch::{Codec, HEADER_SIZE, Header, LOG_OVERHEAD};
use ottla_kernel::codec::{LIMIT, RATIO, compress, decompress};
use ottla_kernel::crc;
use ottla_kernel::encode::{Builder, NO_HEADERS, Origin};

/// Numbers at the edges of what fields hold, as varints and in full width.
const HOSTILE: &[&[u8]] = &[
    &[0xff, 0xff, 0xff, 0xff],
    &[0x7f, 0xff, 0xff, 0xff],
    &[0x80, 0, 0, 0],
    &[0, 0, 0, 0],
    &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    &[0x80, 0, 0, 0, 0, 0, 0, 0],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xfe, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0xff; 11],
    &[0x80, 0x00],
    &[0x01],
    &[0x00],
];
const INPUT_BYTES_MAX: usize = 64 * 1024;

/// Batches in every codec, with and without what records may have.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut made = Vec::new();
    for codec in Codec::ALL {
        for attributes in [0, 0x08, 0x10, 0x20, 0x30, 0x40] {
            let mut builder = Builder::new(10, None);
            for delta in 0..20_i64 {
                let key = (delta % 3 != 0).then_some(&b"some key"[..]);
                let value = (delta % 5 != 0).then_some(&b"a value that repeats, that repeats"[..]);
                let headers = match delta % 4 {
                    0 => &b"\x04\x02h\x04xy\x02i\x01"[..],
                    3 => &b"\x02\x02h\x42the last field of the last record"[..],
                    _ => NO_HEADERS,
                };
                let added = builder.append(delta * 2, 1_700_000_000_000 + delta * 37, key, value, headers);
                assert!(added.is_ok());
            }
            made.extend(build(&builder, codec, attributes));
        }
    }
    made
}

fn build(builder: &Builder, codec: Codec, attributes: i16) -> Option<Vec<u8>> {
    let origin = Origin {
        leader_epoch: 0,
        producer_id: 7,
        producer_epoch: 1,
        base_sequence: 0,
        attributes: Some(codec as i16 | attributes),
        append_time_ms: None,
        last_offset_delta: None,
    };
    let packed = builder.pack(codec, None).ok()?;
    let mut batch = builder.header(codec, &packed, &origin).pack().to_vec();
    batch.extend_from_slice(&packed);
    Some(batch)
}

pub struct Mutator {
    random: u64,
    corpus: Vec<Vec<u8>>,
}

impl Mutator {
    pub fn new(seed: u64, corpus: Vec<Vec<u8>>) -> Self {
        Self { random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, corpus }
    }

    pub fn next(&mut self) -> Vec<u8> {
        let mut input = self.pick();
        if self.below(3) == 0 {
            self.change_unpacked(&mut input);
        } else {
            self.change(&mut input, 0);
        }
        if self.below(2) == 0 {
            seal(&mut input);
        }
        while self.below(3) == 0 && input.len() < INPUT_BYTES_MAX {
            let more = self.pick();
            input.extend_from_slice(&more);
        }
        input
    }

    fn pick(&mut self) -> Vec<u8> {
        let at = self.below(self.corpus.len());
        self.corpus[at].clone()
    }

    /// Change the records of a compressed batch before they are packed again.
    fn change_unpacked(&mut self, input: &mut Vec<u8>) {
        let codec = Header::parse(input).and_then(|header| header.codec().ok()).unwrap_or(Codec::None);
        let Some(packed) = input.get(HEADER_SIZE..) else { return };
        let Ok(unpacked) = decompress(codec, packed, LIMIT, RATIO) else { return };
        let mut records = unpacked.into_owned();
        self.change(&mut records, 0);
        let Ok(packed) = compress(codec, &records, None) else { return };
        input.truncate(HEADER_SIZE);
        input.extend_from_slice(&packed);
        seal(input);
    }

    fn change(&mut self, bytes: &mut Vec<u8>, from: usize) {
        for _ in 0..=self.below(4) {
            if bytes.len() <= from {
                return;
            }
            let at = from + self.below(bytes.len() - from);
            match self.below(7) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.below(256) as u8,
                2 => {
                    let number = HOSTILE[self.below(HOSTILE.len())];
                    let end = bytes.len().min(at + number.len());
                    bytes[at..end].copy_from_slice(&number[..end - at]);
                }
                3 => {
                    let number = HOSTILE[self.below(HOSTILE.len())];
                    bytes.splice(at..at, number.iter().copied());
                }
                4 => {
                    let end = bytes.len().min(at + 1 + self.below(20));
                    bytes.drain(at..end);
                }
                5 => bytes.truncate(bytes.len().saturating_sub(1 + self.below(40)).max(from)),
                _ => {
                    let end = bytes.len().min(at + 1 + self.below(40));
                    let again = bytes[at..end].to_vec();
                    bytes.splice(at..at, again);
                }
            }
        }
    }

    /// A number below `limit`, which is not 0 (xorshift64*).
    fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
}

/// Give the batch the length and the checksum it needs to be taken at its word.
fn seal(batch: &mut [u8]) {
    let Some(mut header) = Header::parse(batch) else { return };
    header.length = (batch.len() - LOG_OVERHEAD) as i32;
    header.magic = 2;
    header.crc = crc::of_parts(&header, &batch[HEADER_SIZE..]);
    batch[..HEADER_SIZE].copy_from_slice(&header.pack());
}
