//! Predicted segments are processed as [`Receiver::on_ulpdu`] processes them.

use crate::support::{A, Region, Table, hex, sealed};
use proptest::prelude::*;
use std::collections::VecDeque;
use xwarp_iwarp::rdmap::{Prediction, predict_unverified};
use xwarp_iwarp::{
    AccessKind, FastReadSegment, FastSegment, Inbound, Placement, ReadRequest, Receiver, Resources,
    SendKind, Sender, Stag, StreamConfig, Violation,
};

/// Segments of one stream.
const SEGMENTS: std::ops::Range<usize> = 1..12;
/// Size of the region in bytes, larger than any payload or buffer.
const REGION: u64 = 64;

/// A segment of a random stream. Control bytes are without versions.
#[derive(Clone, Debug)]
struct Draft {
    control: u8,
    rsvd_ulp: u8,
    stag: u32,
    to: u64,
    qn: u32,
    /// Distance from the expected message number.
    skip: u32,
    mo: u32,
    payload: Vec<u8>,
}

impl Draft {
    /// The ULPDU, on a stream of this version whose next Send is `msn`.
    fn ulpdu(&self, version: u8, msn: u32) -> Vec<u8> {
        let mut ulpdu = vec![self.control ^ version, self.rsvd_ulp ^ version << 6];
        ulpdu.extend(self.stag.to_be_bytes());
        if self.control & 0x80 != 0 {
            ulpdu.extend(self.to.to_be_bytes());
        } else {
            for field in [self.qn, msn + self.skip, self.mo] {
                ulpdu.extend(field.to_be_bytes());
            }
        }
        ulpdu.extend(&self.payload);
        ulpdu
    }
}

fn draft() -> impl Strategy<Value = Draft> {
    let control = prop_oneof![
        4 => Just(0xc0), // T=1 L=1
        2 => Just(0x80),
        6 => Just(0x40), // T=0 L=1
        1 => Just(0x00),
        1 => any::<u8>(),
    ];
    let rsvd_ulp = prop_oneof![
        6 => prop::sample::select(vec![0, 3, 5]), // Write, Send, Send with Solicited Event
        1 => any::<u8>(),
    ];
    let (stag, to) = (prop_oneof![8 => Just(A.0), 1 => any::<u32>()], 0..REGION);
    let number = || prop_oneof![12 => Just(0), 1 => 1..4_u32];
    let payload = prop::collection::vec(any::<u8>(), 0..16);
    (
        control,
        rsvd_ulp,
        (stag, to),
        [number(), number(), number()],
        payload,
    )
        .prop_map(
            |(control, rsvd_ulp, (stag, to), [qn, skip, mo], payload)| Draft {
                control,
                rsvd_ulp,
                stag,
                to,
                qn,
                skip,
                mo,
                payload,
            },
        )
}

/// Result for a segment that is predicted if possible.
fn taken<'a>(
    receiver: &mut Receiver,
    ulpdu: &'a [u8],
    table: &mut Table,
) -> Result<Inbound<'a>, Violation> {
    match receiver.predict(ulpdu) {
        Some(FastSegment::Write {
            stag,
            to,
            payload,
            last,
        }) => {
            let (len, kind) = (payload.len() as u64, AccessKind::RemoteWrite);
            if table.admit(stag, to, len, kind).is_err() {
                return receiver.on_ulpdu(ulpdu, table);
            }
            let placement = Placement {
                place: Some(()),
                stag,
                to,
                payload,
            };
            Ok(Inbound::Write { placement, last })
        }
        Some(FastSegment::Send { solicited, payload }) => {
            let fits = |buffer: &u64| *buffer >= payload.len() as u64;
            if !table.receives.front().is_some_and(fits) {
                return receiver.on_ulpdu(ulpdu, table);
            }
            table.receives.pop_front();
            receiver.placed_send();
            let invalidate = None;
            Ok(Inbound::Send {
                kind: SendKind {
                    solicited,
                    invalidate,
                    immediate: None,
                },
                offset: 0,
                payload,
                message_len: u32::try_from(payload.len()).ok(),
            })
        }
        None => receiver.on_ulpdu(ulpdu, table),
    }
}

/// A segment of a Read on a random stream: the expected one, with some fields changed.
#[derive(Clone, Debug)]
struct ReadDraft {
    control: u8,
    opcode: u8,
    /// Distances from the expected Queue Number, message number and offset; for a response, from
    /// its Tagged Offset.
    beyond: [u32; 3],
    stag: u32,
    to: u64,
    len: u32,
    /// A response ends with it, as it must.
    is_rest: bool,
    /// Size of a request in bytes.
    size: usize,
    /// Responses of this side that complete after it.
    answered: usize,
}

impl ReadDraft {
    /// The ULPDU, where the next request is `msn` and the next response continues at a Tagged
    /// Offset with `left` bytes missing.
    fn ulpdu(&self, version: u8, msn: u32, (due, left): (u64, u32)) -> Vec<u8> {
        let mut ulpdu = vec![self.control ^ version, self.opcode ^ version << 6];
        let [qn, skip, mo] = self.beyond;
        if self.control & 0x80 != 0 {
            ulpdu.extend(self.stag.to_be_bytes());
            ulpdu.extend((due + u64::from(mo)).to_be_bytes());
            let len = if self.is_rest { left } else { self.len };
            ulpdu.extend(vec![7; len as usize]);
            return ulpdu;
        }
        for field in [0, 1 + qn, msn + skip, mo, 9, 0, 9, self.len, self.stag] {
            ulpdu.extend(field.to_be_bytes());
        }
        ulpdu.extend(self.to.to_be_bytes());
        ulpdu.resize(self.size, 0);
        ulpdu
    }
}

fn read_draft() -> impl Strategy<Value = ReadDraft> {
    let request = (prop_oneof![9 => Just(0x40), 1 => Just(0_u8)], Just(1));
    let response = (prop_oneof![Just(0xc0), Just(0x80)], Just(2));
    let kind = prop_oneof![4 => request, 6 => response, 1 => any::<(u8, u8)>()];
    let number = || prop_oneof![20 => Just(0), 1 => 1..4_u32];
    let stag = prop_oneof![12 => Just(A.0), 1 => any::<u32>()];
    let size = prop_oneof![16 => Just(18 + 28), 1 => 0..64_usize];
    let place = (stag, 0..REGION, 0..24_u32, any::<bool>());
    let beyond = [number(), number(), number()];
    (kind, beyond, place, size, 0..2_usize).prop_map(
        |((control, opcode), beyond, (stag, to, len, is_rest), size, answered)| ReadDraft {
            control,
            opcode,
            beyond,
            stag,
            to,
            len,
            is_rest,
            size,
            answered,
        },
    )
}

/// Result for a segment of a Read that is predicted if possible.
fn taken_read<'a>(
    receiver: &mut Receiver,
    ulpdu: &'a [u8],
    table: &mut Table,
) -> Result<Inbound<'a>, Violation> {
    match receiver.predict_read(ulpdu) {
        Some(FastReadSegment::Request(read)) => {
            let (source, to, len) = (
                read.request.source,
                read.request.source_to,
                read.request.len,
            );
            let admitted = table.admit(source, to, len.into(), AccessKind::RemoteRead);
            if admitted.is_err() {
                return receiver.on_ulpdu(ulpdu, table);
            }
            receiver.queued_read();
            Ok(Inbound::ReadRequest(read))
        }
        Some(FastReadSegment::Response {
            stag,
            to,
            payload,
            last,
        }) => {
            let (len, kind) = (payload.len(), AccessKind::ReadSink);
            if table.admit(stag, to, len as u64, kind).is_err() {
                return receiver.on_ulpdu(ulpdu, table);
            }
            receiver.placed_response(len, last);
            let placement = Placement {
                place: Some(()),
                stag,
                to,
                payload,
            };
            Ok(Inbound::ReadResponse {
                placement,
                done: last,
            })
        }
        None => receiver.on_ulpdu(ulpdu, table),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 4096 }))]

    #[test]
    fn predicted_segments_are_taken_as_all_others(
        drafts in prop::collection::vec(draft(), SEGMENTS),
        buffers in prop::collection::vec(0..REGION, 0..8),
        version in 0..2_u8,
        await_rtr: bool,
    ) {
        let config = StreamConfig { version, await_rtr, ..StreamConfig::new(1, 1) };
        let mut receivers = [Receiver::new(config), Receiver::new(config)];
        let (regions, receives) = (vec![Region::new(A, 0, REGION)], buffers.into());
        let table = Table { regions, receives };
        let mut tables = [table.clone(), table];
        let mut msn = 1;
        for draft in drafts {
            let ulpdu = draft.ulpdu(version, msn);
            let [judge, predictor] = &mut receivers;
            let verdict = judge.on_ulpdu(&ulpdu, &mut tables[0]);
            prop_assert_eq!(&taken(predictor, &ulpdu, &mut tables[1]), &verdict);
            let whole = matches!(verdict, Ok(Inbound::Send { message_len: Some(_), .. }));
            msn += u32::from(whole || verdict == Ok(Inbound::RtrSend));
            prop_assert_eq!(judge.has_ended(), predictor.has_ended());
            prop_assert_eq!(judge.mid_message(), predictor.mid_message());
            prop_assert_eq!(&tables[0].receives, &tables[1].receives);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 4096 }))]

    #[test]
    fn predicted_segments_of_reads_are_taken_as_all_others(
        drafts in prop::collection::vec(read_draft(), SEGMENTS),
        reads in prop::collection::vec((0..REGION, 0..24_u32), 0..8),
        version in 0..2_u8,
        ird in 0..4_u16,
    ) {
        let config = StreamConfig { version, ..StreamConfig::new(ird, 8) };
        let mut receivers = [Receiver::new(config), Receiver::new(config)];
        for (sink_to, len) in reads.iter().copied() {
            let (sink, source) = (A, Stag(9));
            let read = ReadRequest { sink, sink_to, len, source, source_to: 0 };
            for receiver in &mut receivers {
                receiver.expect_read(read);
            }
        }
        let (regions, receives) = (vec![Region::new(A, 0, REGION)], VecDeque::new());
        let mut table = Table { regions, receives };
        let (mut msn, mut due) = (1, VecDeque::from(reads));
        for draft in drafts {
            let ulpdu = draft.ulpdu(version, msn, due.front().copied().unwrap_or_default());
            let [judge, predictor] = &mut receivers;
            let verdict = judge.on_ulpdu(&ulpdu, &mut table);
            prop_assert_eq!(&taken_read(predictor, &ulpdu, &mut table), &verdict);
            match verdict {
                Ok(Inbound::ReadRequest(_)) => msn += 1,
                Ok(Inbound::ReadResponse { done: true, .. }) => drop(due.pop_front()),
                Ok(Inbound::ReadResponse { placement, .. }) => {
                    let len = u32::try_from(placement.payload.len()).unwrap();
                    due[0] = (due[0].0 + u64::from(len), due[0].1 - len);
                }
                _ => {}
            }
            for _ in 0..draft.answered {
                receivers.iter_mut().for_each(Receiver::response_sent);
            }
            let state = |it: &Receiver| (it.has_ended(), it.mid_message(), it.outstanding_reads());
            prop_assert_eq!(state(&receivers[0]), state(&receivers[1]));
        }
    }
}

#[test]
fn requests_and_responses_of_reads_are_predicted() {
    let mut receiver = Receiver::new(StreamConfig::new(1, 1));
    let request = ReadRequest {
        sink: A,
        sink_to: 0x40,
        len: 2,
        source: A,
        source_to: 0,
    };
    let mut sender = Sender::new(StreamConfig::new(1, 1));
    let asked = sender.whole_read_request(&request);
    let predicted = receiver.predict_read(&asked);
    assert!(matches!(predicted, Some(FastReadSegment::Request(read)) if read.request == request));
    receiver.expect_read(request);
    let header = sender.whole_read_response(&request);
    let answer = [&header[..], &[7, 7]].concat();
    let (stag, to, payload, last) = (A, 0x40, &[7, 7][..], true);
    let predicted = FastReadSegment::Response {
        stag,
        to,
        payload,
        last,
    };
    assert_eq!(receiver.predict_read(&answer), Some(predicted));
    receiver.placed_response(payload.len(), last);
    assert_eq!(receiver.predict_read(&answer), None);
}

#[test]
fn segments_of_writes_and_sends_of_one_segment_are_predicted() {
    let receiver = Receiver::new(StreamConfig::new(1, 1));
    let write = [
        0x81, 0x40, // T=1 L=0 DV=1, RDMA Write
        0x11, 0x22, 0x33, 0x44, 0, 0, 0, 0, 0, 0, 0, 0x40, // STag A, TO 0x40
        7,
    ];
    let payload = &[7][..];
    for last in [false, true] {
        let mut write = write;
        write[0] |= u8::from(last) << 6;
        let predicted = FastSegment::Write {
            stag: A,
            to: 0x40,
            payload,
            last,
        };
        assert_eq!(receiver.predict(&write), Some(predicted));
    }
    let send = [
        0x41, 0x45, // T=0 L=1 DV=1, Send with Solicited Event
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, // QN 0, MSN 1, MO 0
        7,
    ];
    let solicited = true;
    let predicted = FastSegment::Send { solicited, payload };
    assert_eq!(receiver.predict(&send), Some(predicted));
}

/// Prediction for a stream that begins with an FPDU of this ULPDU.
fn predict_of(ulpdu: &str) -> Prediction {
    predict_unverified(&sealed(&hex(ulpdu)))
}

#[test]
fn two_bytes_tell_what_an_fpdu_seems_to_carry() {
    // Invalidate STag, QN, MSN; or STag, TO.
    let behind = "00000000 00000000 00000001";
    for (control, opcode, mo, expected) in [
        ("41", "43", "00000000", Prediction::WholeSend),
        ("41", "45", "00000000", Prediction::WholeSend), // solicited
        ("01", "43", "00000000", Prediction::Other),     // more segments follow
        ("41", "43", "000005a0", Prediction::Other),     // the last of several
        ("41", "44", "00000000", Prediction::Other),     // invalidates
        ("41", "41", "00000000", Prediction::Other),     // Read Request
        ("c1", "40", "00000000", Prediction::Write(Stag(0))),
        ("81", "40", "00000000", Prediction::Write(Stag(0))), // not its last segment
        ("c1", "42", "00000000", Prediction::Other),          // Read Response
    ] {
        let ulpdu = format!("{control}{opcode}{behind}{mo}").replace(' ', "");
        assert_eq!(predict_of(&ulpdu), expected, "{control} {opcode} {mo}");
    }
    assert_eq!(predict_of("41"), Prediction::Other);
    assert_eq!(predict_unverified(&[]), Prediction::Other);
}
