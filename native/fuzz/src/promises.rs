//! What the kernel promises about any bytes; a broken promise is a panic here.

use ottla_kernel::arrow::{BATCH_BYTES_MAX, BYTES_MAX, Binary, Columns, Part, read_columns};
use ottla_kernel::batch::{Codec, HEADER_SIZE, Header};
use ottla_kernel::codec::{self, LIMIT, RATIO};
use ottla_kernel::decode::{Spans, headers_of, records_of};
use ottla_kernel::decode_fetched::{Aborted, Walk};
use ottla_kernel::encode::{Builder, write_field};
use ottla_kernel::errors::Result;
use ottla_kernel::produce::{Rules, check_produced};
use ottla_kernel::produce_request::{Budget, Place, add_answer, check as check_request, outline};
use ottla_kernel::scan::scan;
use ottla_kernel::{control, lookup, varint};

const NOW_MS: i64 = 1_700_000_000_000;

/// Every decoder has an answer, and the answers agree.
pub fn check(input: &[u8]) {
    codecs_stay_within_their_allowance(input);
    let _ = produced(input);
    let found = scan(input, true);
    assert!(found.consumed <= input.len());
    let mut at = 0;
    for header in &found.headers {
        let _ = control::read_end_txn_marker(input, at);
        let _ = lookup::find_time(input, header, at, NOW_MS, 5);
        let _ = what_is_read_can_be_written(input, header, at);
        at += header.size();
    }
    columns_hold_the_records(input, Vec::new());
    columns_hold_the_records(input, vec![Aborted { first_offset: 3, producer_id: 7 }]);
}

fn codecs_stay_within_their_allowance(input: &[u8]) {
    let packed = input.get(HEADER_SIZE..).unwrap_or(input);
    let named = Header::parse(input).and_then(|header| header.codec().ok());
    if let Some(codec) = named.filter(|codec| *codec != Codec::None) {
        if let Ok(unpacked) = codec::decompress(codec, packed, LIMIT, RATIO) {
            assert!(unpacked.len() <= codec::allowance(packed.len(), LIMIT, RATIO), "a bomb of {codec:?}");
        }
    }
}

fn produced(input: &[u8]) -> Result<()> {
    let mut rules = Rules {
        compacted: false,
        log_append_time: false,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: 3_600_000,
        codec: None,
        level: None,
        max_message_bytes: None,
        from_client: true,
        at_once_max: None,
    };
    check_produced(input, &rules, NOW_MS)?;
    a_request_has_the_batch(input, rules);
    (rules.codec, rules.log_append_time, rules.compacted) = (Some(Codec::Lz4), true, true);
    check_produced(input, &rules, NOW_MS)?;
    Ok(())
}

/// The batch as the only one of a request, and the same bytes as if they were a request.
fn a_request_has_the_batch(input: &[u8], rules: Rules) {
    if let Some(request) = outline(input, 0) {
        let rules = vec![rules; request.topics.len()];
        let _ = check_request(input, &request, &rules, NOW_MS, &mut Budget { bytes: usize::MAX });
    }
    let mut length = Vec::new();
    let mut left = input.len() + 1;
    while left > 127 {
        length.push(left as u8 | 128);
        left >>= 7;
    }
    length.push(left as u8);
    // Version 13, correlation id 9, no client id, no transactional id, acks=1, one topic with one partition.
    let head =
        [&[0, 0, 0, 13, 0, 0, 0, 9, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 2][..], &[7; 16], &[2, 0, 0, 0, 5]].concat();
    let body = [&head[..], &length, input, &[0, 0, 0]].concat();
    let sent = [&(body.len() as i32).to_be_bytes()[..], &body].concat();
    let request = outline(&sent, 0).expect("a request in order");
    assert_eq!((request.end, request.correlation_id, request.batches()), (sent.len(), 9, 1));
    let Some(mut found) = check_request(&sent, &request, &[rules], NOW_MS, &mut Budget { bytes: usize::MAX }) else {
        return;
    };
    let mut place = Place {
        next_offset: 5,
        leader_epoch: 1,
        log_start_offset: 0,
        bytes_left: 1 << 30,
        batches_left: 1,
        latest_timestamp: i64::MAX,
        offset_max: i64::MAX,
    };
    assert!(place.takes(&found[0]));
    place.number(&mut found[0]);
    assert_eq!((found.len(), found[0].base_offset, found[0].size()), (1, 5, input.len()));
    assert_eq!(place.bytes_left, (1 << 30) - input.len() as i64);
    let mut answers = Vec::new();
    add_answer(&mut answers, &sent, &request, &[[5, -1, 0]]);
    assert_eq!(answers.len(), 4 + 4 + 1 + 1 + 16 + 1 + 4 + 2 + 24 + 3 + 1 + 4 + 1);
}

/// Records that are read, written again, and read again, are the same.
fn what_is_read_can_be_written(input: &[u8], header: &Header, at: usize) -> Result<()> {
    let records = records_of(input, header, at)?;
    let mut spans = Spans::new(&records, header)?;
    let mut builder = Builder::new(header.base_offset, Some(header.base_timestamp));
    let mut read = Vec::new();
    while let Some(span) = spans.next()? {
        let mut headers = Vec::new();
        varint::write(&mut headers, headers_of(span.headers).count() as i64);
        for (name, value) in headers_of(span.headers) {
            write_field(&mut headers, Some(name));
            write_field(&mut headers, value);
        }
        builder.append(span.offset - header.base_offset, span.timestamp, span.key, span.value, &headers)?;
        read.push((span.offset, span.timestamp, span.key, span.value));
    }
    let written = builder.pack(Codec::None, None)?;
    let plain = Header { attributes: 0, ..*header };
    let mut again = Spans::new(&written, &plain)?;
    for expected in read {
        let Ok(Some(span)) = again.next() else { panic!("a record that was written is not read") };
        assert_eq!((span.offset, span.timestamp, span.key, span.value), expected);
    }
    assert_eq!(again.next(), Ok(None), "more is read than was written");
    Ok(())
}

/// One walk makes columns, the other counts: both come equally far and find as much.
fn columns_hold_the_records(input: &[u8], aborted: Vec<Aborted>) {
    let position = 12;
    let mut walk = Walk::new(position, aborted.clone(), BATCH_BYTES_MAX);
    let (mut count, mut bytes) = (0, 0);
    while let Some((records, size)) = walk.next(input, |header, records, from| {
        let mut spans = Spans::new(&records, header)?;
        let (mut count, mut bytes) = (0, 0);
        while let Some(span) = spans.next()? {
            if span.offset >= from {
                count += 1;
                bytes += span.key.map_or(0, <[u8]>::len) + span.value.map_or(0, <[u8]>::len);
            }
        }
        Ok((count > 0).then_some((count, bytes)))
    }) {
        count += records;
        bytes += size;
    }
    let mut parts = [Part { partition: 0, data: input, walk: Walk::new(position, aborted, BATCH_BYTES_MAX) }];
    let columns = read_columns(&mut parts, BYTES_MAX);
    assert_eq!(columns.count(), count);
    assert_eq!(columns.key.bytes.len() + columns.value.bytes.len(), bytes);
    assert_eq!(parts[0].walk.next_offset, walk.next_offset);
    assert_eq!(parts[0].walk.damage, walk.damage);
    assert!(walk.finished && walk.next_offset >= position);
    well_formed(&columns);
}

/// What an importer of Arrow's buffers relies on.
fn well_formed(columns: &Columns) {
    let rows = columns.count();
    assert_eq!((columns.partition.len(), columns.timestamp.len(), columns.timestamp_type.len()), (rows, rows, rows));
    assert_eq!((columns.key.count(), columns.value.count(), columns.header_ends.len()), (rows, rows, rows + 1));
    assert_eq!(columns.header_key.count(), columns.header_value.count());
    assert_eq!(columns.header_ends.last().copied(), i32::try_from(columns.header_key.count()).ok());
    assert!(columns.header_ends.is_sorted());
    assert!(std::str::from_utf8(&columns.header_key.bytes).is_ok(), "a header's name is text");
    for column in [&columns.key, &columns.value, &columns.header_key, &columns.header_value] {
        well_formed_binary(column);
    }
}

fn well_formed_binary(column: &Binary) {
    assert!(column.ends.is_sorted() && column.ends[0] == 0);
    assert_eq!(column.ends.last().copied(), i32::try_from(column.bytes.len()).ok());
    let nulls = (0..column.count()).filter(|index| column.get(*index).is_none()).count();
    assert_eq!(nulls, column.null_count);
    assert!(column.null_count == 0 || column.validity.len() == column.count().div_ceil(8));
}
