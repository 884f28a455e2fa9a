//! Variable-length integers: 7 bits a byte, least significant first, signed ones zigzag (0, -1, 1, -2 as 0, 1, 2, 3).
//!
//! Rule 1: at most 5 bytes for 32 bits and 10 for 64; longer, or a value past the width, is corrupt.
//! Rule 2: positions are in the uncompressed records of a batch and may lie past their end, where a length led them:
//!         reading there says `Ends`. No position overflows, since each step adds 2^31 at most and takes a byte.

use crate::errors::Fault;

/// Why no varint could be read.
#[derive(Debug)]
pub enum Unread {
    /// The bytes end first; the caller knows what they are.
    Ends,
    /// It breaks rule 1.
    Bad(Fault),
}

impl From<Fault> for Unread {
    fn from(fault: Fault) -> Self {
        Self::Bad(fault)
    }
}

/// The varint of 32 bits at `position` without zigzag decoding; moves `position` past it.
#[inline(always)]
pub fn read_u32(data: &[u8], position: &mut usize) -> Result<u32, Unread> {
    let Some(&first) = data.get(*position) else { return Err(Unread::Ends) };
    if first < 128 {
        *position += 1;
        return Ok(u32::from(first));
    }
    let Some(&second) = data.get(*position + 1) else { return Err(Unread::Ends) };
    if second < 128 {
        *position += 2;
        return Ok(u32::from(first & 127) | u32::from(second) << 7);
    }
    read_long(data, position, 5).map(|value| value as u32)
}

/// The varint of 64 bits at `position` without zigzag decoding; moves `position` past it.
#[inline(always)]
pub fn read_u64(data: &[u8], position: &mut usize) -> Result<u64, Unread> {
    let Some(&first) = data.get(*position) else { return Err(Unread::Ends) };
    if first < 128 {
        *position += 1;
        return Ok(u64::from(first));
    }
    let Some(&second) = data.get(*position + 1) else { return Err(Unread::Ends) };
    if second < 128 {
        *position += 2;
        return Ok(u64::from(first & 127) | u64::from(second) << 7);
    }
    read_long(data, position, 10)
}

/// Any form, with the checks of rule 1.
#[cold]
fn read_long(data: &[u8], position: &mut usize, bytes_max: usize) -> Result<u64, Unread> {
    let start = *position;
    let width = if bytes_max == 5 { 32 } else { 64 };
    let mut value: u128 = 0;
    for more in 0..bytes_max {
        let Some(&byte) = data.get(start + more) else { return Err(Unread::Ends) };
        value |= u128::from(byte & 127) << (7 * more);
        if byte < 128 {
            if value >> width != 0 {
                let text = format!("the varint at {start} of the records exceeds {width} bits");
                return Err(Fault::Corrupt(text).into());
            }
            *position = start + more + 1;
            return Ok(value as u64);
        }
    }
    Err(Fault::Corrupt(format!("the varint at {start} of the records is longer than {bytes_max} bytes")).into())
}

#[inline(always)]
pub fn unzigzag32(unsigned: u32) -> i32 {
    (unsigned >> 1) as i32 ^ -((unsigned & 1) as i32)
}

#[inline(always)]
pub fn unzigzag64(unsigned: u64) -> i64 {
    (unsigned >> 1) as i64 ^ -((unsigned & 1) as i64)
}

/// Append `value` as a zigzag varint; the 32-bit form of a value is the same.
#[inline]
pub fn write(out: &mut Vec<u8>, value: i64) {
    let mut unsigned = ((value << 1) ^ (value >> 63)) as u64;
    while unsigned > 127 {
        out.push(unsigned as u8 | 128);
        unsigned >>= 7;
    }
    out.push(unsigned as u8);
}

/// The number of bytes that `write` appends.
#[inline]
pub fn size(value: i64) -> usize {
    let unsigned = ((value << 1) ^ (value >> 63)) as u64;
    (70 - (unsigned | 1).leading_zeros() as usize) / 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_measured() {
        for value in [0, -1, 1, 63, -64, 64, 8191, -8193, i64::from(i32::MAX), i64::from(i32::MIN), i64::MAX, i64::MIN]
        {
            let (mut out, mut position) = (Vec::new(), 0);
            write(&mut out, value);
            assert_eq!(out.len(), size(value), "{value}");
            assert_eq!(unzigzag64(read_u64(&out, &mut position).unwrap()), value);
            assert_eq!(position, out.len());
        }
    }

    #[test]
    fn too_long_and_too_large_are_corrupt() {
        assert!(matches!(read_u32(&[255, 255, 255, 255, 16], &mut 0), Err(Unread::Bad(_))));
        assert!(matches!(read_u32(&[255; 5], &mut 0), Err(Unread::Bad(_))));
        assert!(matches!(read_u32(&[255, 255], &mut 0), Err(Unread::Ends)));
        assert!(matches!(read_u64(&[255, 255, 255, 255, 255, 255, 255, 255, 255, 2], &mut 0), Err(Unread::Bad(_))));
    }
}
