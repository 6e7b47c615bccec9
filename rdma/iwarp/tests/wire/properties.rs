//! Properties that hold for any bytes and any messages.

use crate::support::{Region, Stream, Table, framed, hex, sealed, ulpdu_from};
use proptest::prelude::*;
use std::collections::VecDeque;
use xwarp_iwarp::mpa::{
    Deframer, Enhanced, Framer, MpaError, Step, Unverified, fpdu_len, next_fpdu,
};
use xwarp_iwarp::{
    Inbound, Initiator, Message, Placement, ReadRequest, Receiver, Responder, SendKind, Sender,
    Stag, StartupParams, StreamConfig,
};

/// Prediction of a deframer, with or without markers.
fn predict<'a>(deframer: &'a mut Deframer, stream: &'a [u8], at: usize) -> Option<Unverified<'a>> {
    if deframer.has_markers() {
        assert!(deframer.predict::<false>(stream, at).is_none());
        return deframer.predict::<true>(stream, at);
    }
    assert!(deframer.predict::<true>(stream, at).is_none());
    deframer.predict::<false>(stream, at)
}

/// One message of a random stream.
#[derive(Clone, Copy, Debug)]
enum Work {
    Send {
        solicited: bool,
        invalidate: bool,
        len: u32,
    },
    Write {
        len: u32,
    },
    ReadRequest {
        len: u32,
    },
    ReadResponse {
        len: u32,
    },
}

fn work() -> impl Strategy<Value = Work> {
    let len = prop_oneof![Just(0u32), 1u32..200, 1000u32..4000];
    prop_oneof![
        (any::<bool>(), any::<bool>(), len.clone()).prop_map(|(solicited, invalidate, len)| {
            Work::Send {
                solicited,
                invalidate,
                len,
            }
        }),
        len.clone().prop_map(|len| Work::Write { len }),
        len.clone().prop_map(|len| Work::ReadRequest { len }),
        len.prop_map(|len| Work::ReadResponse { len }),
    ]
}

/// What arrived, in the order in which messages began: payload bytes, or the request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Arrived {
    Bytes { whole: bool, bytes: Vec<u8> },
    Request(ReadRequest),
}

/// A message in transmission, and its payload.
struct Outbound {
    message: Message,
    payload: Vec<u8>,
}

/// A random stream: two queues, as tagged segments may come between those of a Send.
struct Plan {
    untagged: VecDeque<Outbound>,
    tagged: VecDeque<Outbound>,
    receiver: Receiver,
    table: Table,
    expected_untagged: Vec<Arrived>,
    expected_tagged: Vec<(Stag, Arrived)>,
}

const BASE: u64 = 0xFFFF_FF00; // so that offsets carry over 32 bits

impl Plan {
    fn new(works: &[Work]) -> Self {
        let config = StreamConfig {
            send_immediates: true,
            ..StreamConfig::new(64, 64)
        };
        let mut sender = Sender::new(config);
        let mut plan = Self {
            untagged: VecDeque::new(),
            tagged: VecDeque::new(),
            receiver: Receiver::new(config),
            table: Table::default(),
            expected_untagged: Vec::new(),
            expected_tagged: Vec::new(),
        };
        for (work, index) in works.iter().zip(1u32..) {
            plan.add(*work, Stag(index << 8), &mut sender);
        }
        plan
    }

    /// Each message has a region of its own, of exactly its length.
    fn add(&mut self, work: Work, stag: Stag, sender: &mut Sender) {
        let (Work::Send { len, .. }
        | Work::Write { len }
        | Work::ReadRequest { len }
        | Work::ReadResponse { len }) = work;
        self.table
            .regions
            .push(Region::new(stag, BASE, u64::from(len)));
        let read = ReadRequest {
            sink: stag,
            sink_to: BASE,
            len,
            source: stag,
            source_to: BASE,
        };
        let payload: Vec<u8> = (0..len)
            .map(|i| (i ^ stag.0 >> 8).wrapping_mul(31).to_be_bytes()[3])
            .collect();
        let arrived = Arrived::Bytes {
            whole: true,
            bytes: payload.clone(),
        };
        match work {
            Work::Send {
                solicited,
                invalidate,
                ..
            } => {
                self.table.receives.push_back(u64::from(len));
                let kind = SendKind {
                    solicited,
                    invalidate: invalidate.then_some(stag),
                    immediate: (!invalidate && len.is_multiple_of(2)).then_some(len.to_be_bytes()),
                };
                self.expected_untagged.push(arrived);
                self.untagged.push_back(Outbound {
                    message: sender.send(kind, len),
                    payload,
                });
            }
            Work::ReadRequest { .. } => {
                self.expected_untagged.push(Arrived::Request(read));
                let message = sender.read_request(&read);
                self.untagged.push_back(Outbound {
                    message,
                    payload: Vec::new(),
                });
            }
            Work::Write { .. } => {
                self.expected_tagged.push((stag, arrived));
                self.tagged.push_back(Outbound {
                    message: sender.write(stag, BASE, len),
                    payload,
                });
            }
            Work::ReadResponse { .. } => {
                self.expected_tagged.push((stag, arrived));
                self.receiver.expect_read(read);
                self.tagged.push_back(Outbound {
                    message: sender.read_response(&read),
                    payload,
                });
            }
        }
    }

    /// All FPDUs, the two queues interleaved by `choices`, each with its own MULPDU.
    fn stream(&mut self, choices: &[(bool, usize)]) -> Vec<u8> {
        let mut stream = Vec::new();
        let mut choices = choices.iter().cycle();
        while !(self.untagged.is_empty() && self.tagged.is_empty()) {
            let (untagged, mulpdu) = *choices.next().expect("cycles");
            let untagged = if self.untagged.is_empty() || self.tagged.is_empty() {
                self.tagged.is_empty()
            } else {
                untagged
            };
            let queue = if untagged {
                &mut self.untagged
            } else {
                &mut self.tagged
            };
            let outbound = queue.front_mut().expect("not empty");
            let segment = outbound.message.next_segment(mulpdu).expect("not done");
            stream.extend(sealed(&ulpdu_from(&segment, &outbound.payload)));
            if outbound.message.is_done() {
                queue.pop_front();
            }
        }
        stream
    }
}

/// Collects what the receiver returns. Fails if a byte arrives twice or out of order.
#[derive(Default)]
struct Collected {
    untagged: Vec<Arrived>,
    tagged: Vec<(Stag, Arrived)>,
}

impl Collected {
    fn take(&mut self, inbound: &Inbound<'_>) {
        match *inbound {
            Inbound::Send {
                offset,
                payload,
                message_len,
                ..
            } => {
                if offset == 0
                    && !matches!(
                        self.untagged.last(),
                        Some(Arrived::Bytes { whole: false, .. })
                    )
                {
                    self.untagged.push(Arrived::Bytes {
                        whole: false,
                        bytes: Vec::new(),
                    });
                }
                let Some(Arrived::Bytes { whole, bytes }) = self.untagged.last_mut() else {
                    panic!("a Send")
                };
                assert!(!*whole);
                assert_eq!(offset as usize, bytes.len());
                bytes.extend(payload);
                *whole = message_len == Some(u32::try_from(bytes.len()).unwrap());
                assert_eq!(*whole, message_len.is_some());
            }
            Inbound::ReadRequest(ref read) => self.untagged.push(Arrived::Request(read.request)),
            Inbound::Write { placement, last }
            | Inbound::ReadResponse {
                placement,
                done: last,
            } => {
                let Placement {
                    stag, to, payload, ..
                } = placement;
                if self.tagged.last().is_none_or(|(open, _)| *open != stag) {
                    self.tagged.push((
                        stag,
                        Arrived::Bytes {
                            whole: false,
                            bytes: Vec::new(),
                        },
                    ));
                }
                let Some((_, Arrived::Bytes { whole, bytes })) = self.tagged.last_mut() else {
                    panic!("bytes")
                };
                assert!(!*whole);
                assert_eq!(to, BASE + bytes.len() as u64);
                bytes.extend(payload);
                *whole = last;
            }
            Inbound::Immediate { .. }
            | Inbound::AtomicRequest(_)
            | Inbound::AtomicResponse { .. }
            | Inbound::RtrSend
            | Inbound::Terminate(_)
            | Inbound::Dropped => panic!("not in this stream"),
        }
    }
}

proptest! {
    #[test]
    fn every_byte_arrives_exactly_once_however_the_stream_is_cut(
        works in proptest::collection::vec(work(), 1..24),
        choices in proptest::collection::vec((any::<bool>(), 128usize..2000), 1..16),
        cuts in proptest::collection::vec(1usize..3000, 1..16),
    ) {
        let mut plan = Plan::new(&works);
        let sent = plan.stream(&choices);
        let (mut arrived, mut collected) = (Vec::new(), Collected::default());
        let (mut sent, mut cuts) = (&sent[..], cuts.iter().cycle());
        while !sent.is_empty() {
            let (now, later) = sent.split_at((*cuts.next().expect("cycles")).min(sent.len()));
            arrived.extend(now);
            sent = later;
            let mut consumed_all = 0;
            loop {
                match next_fpdu(&arrived[consumed_all..], true).expect("good CRCs") {
                    Step::NeedBytes(total) => {
                        prop_assert!(total > arrived.len() - consumed_all);
                        break;
                    }
                    Step::Fpdu { ulpdu, consumed } => {
                        let inbound = plan.receiver.on_ulpdu(ulpdu, &mut plan.table);
                        collected.take(&inbound.expect("good segments"));
                        consumed_all += consumed;
                    }
                }
            }
            arrived.drain(..consumed_all);
        }
        prop_assert!(arrived.is_empty());
        prop_assert_eq!(collected.untagged, plan.expected_untagged);
        prop_assert_eq!(collected.tagged, plan.expected_tagged);
        prop_assert!(!plan.receiver.mid_message());
        prop_assert_eq!(plan.receiver.outstanding_reads(), 0);
    }

    #[test]
    fn framing_survives_any_bytes(stream in proptest::collection::vec(any::<u8>(), 0..200), crc: bool) {
        match next_fpdu(&stream, crc) {
            Ok(Step::NeedBytes(total)) => prop_assert!(total > stream.len()),
            Ok(Step::Fpdu { ulpdu, consumed }) => {
                prop_assert_eq!(fpdu_len(ulpdu.len()), consumed);
                prop_assert!(consumed <= stream.len());
            }
            Err(_) => {}
        }
    }

    #[test]
    fn predicted_fpdus_are_those_that_are_found(
        ulpdus in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..700), 0..6),
        behind in proptest::collection::vec(any::<u8>(), 0..200),
        damage in proptest::option::of(any::<usize>()),
        run in 1..4_usize,
        crc: bool,
        markers: bool,
    ) {
        let mut framer = Framer::new(crc, markers);
        let fpdus = ulpdus.iter().flat_map(|ulpdu| framed(&mut framer, ulpdu));
        let mut stream: Vec<u8> = fpdus.chain(behind).collect();
        if let Some(at) = damage.filter(|_| !stream.is_empty()) {
            let at = at % stream.len();
            stream[at] ^= 1;
        }
        let deframer = || Deframer::new(crc, markers).with_crc32c(crc32c::crc32c);
        let (mut judge, mut predictor) = (deframer(), deframer());
        let mut rest = &stream[..];
        loop {
            let (taken, fpdus) = predict_run(&mut judge, &mut predictor, rest, run)?;
            predictor.pass(taken);
            rest = &rest[taken..];
            if fpdus < run {
                break;
            }
        }
        prop_assert_eq!(predictor.next(rest), judge.next(rest));
        prop_assert!(predictor.next(rest).is_ok() || predict(&mut predictor, rest, 0).is_none());
    }

    #[test]
    fn any_single_bit_error_is_noticed(payload in proptest::collection::vec(any::<u8>(), 0..300), at: usize) {
        let mut fpdu = sealed(&payload);
        let bit = at % (8 * fpdu.len());
        fpdu[bit / 8] ^= 1 << (bit % 8);
        let accepted = matches!(next_fpdu(&fpdu, true), Ok(Step::Fpdu { .. }));
        prop_assert!(!accepted);
    }

    #[test]
    fn start_up_survives_any_bytes(
        prefix in 0usize..21,
        noise in proptest::collection::vec(any::<u8>(), 0..600),
        reply: bool,
        crc: bool,
    ) {
        let key = if reply { b"MPA ID Rep Frame\x50\x02\x00\x05" } else { b"MPA ID Req Frame\x50\x02\x00\x05" };
        let stream = [&key[..prefix.min(20)], &noise].concat();
        let params = StartupParams { crc, enhanced: crc.then_some(Enhanced::LEFT_TO_ULP), ..StartupParams::DEFAULT };
        let _ = Initiator::new(params).on_bytes(&stream);
        let _ = Responder::new(params).on_bytes(&stream);
    }

    #[test]
    fn receiver_survives_any_bytes(
        segments in proptest::collection::vec(
            (any::<[u8; 2]>(), proptest::collection::vec(any::<u8>(), 0..80)), 1..8),
        extended: bool,
    ) {
        let mut stream = if extended { Stream::extended() } else { Stream::new() }.page().receive(40).receive(40);
        stream.receiver.expect_read(ReadRequest { sink: Stag(1), sink_to: 0, len: 9, source: Stag(1), source_to: 0 });
        stream.receiver.expect_atomic(7);
        for (bits, mut ulpdu) in segments {
            if let [control, rsvd_ulp, ..] = &mut ulpdu[..] {
                // Mostly valid versions, as others are refused at once.
                *control = *control & 0xfc | 1;
                *rsvd_ulp = *rsvd_ulp & 0x3f | 0x40;
                if bits[0] < 0x10 {
                    (*control, *rsvd_ulp) = (bits[0] << 4, bits[1]);
                }
            }
            if let Err(violation) = stream.ulpdu(&ulpdu) {
                prop_assert!(violation.terminate().ulpdu().len() <= 70);
                prop_assert!(violation.terminate().code().is_known());
                prop_assert!(!violation.to_string().is_empty());
            }
        }
    }

    #[test]
    fn mutated_good_segments_are_survived(at in 0usize..46, value: u8, len in 0usize..60, which in 0usize..4) {
        let read = "55667788 0000000000002000 00000010 11223344 0000000000001000";
        let mut ulpdu = match which {
            0 => hex(&format!("41 41 00000000 00000001 00000001 00000000 {read}")),
            1 => hex(&format!("41 44 11223344 00000000 00000001 00000000 {read}")),
            2 => hex(&format!("c1 40 11223344 0000000000001000 {read} 00000000")),
            _ => hex(&format!("c1 42 11223344 0000000000001000 {read} 00000000")),
        };
        if let Some(byte) = ulpdu.get_mut(at) {
            *byte = value;
        }
        ulpdu.resize(len, 0);
        let _ = Stream::new().page().receive(32).ulpdu(&ulpdu);
    }

    #[test]
    fn received_terminate_survives_any_payload(payload in proptest::collection::vec(any::<u8>(), 0..64)) {
        let mut ulpdu = hex("41 47 00000000 00000002 00000001 00000000");
        ulpdu.extend(&payload);
        let received = Stream::new().ulpdu(&ulpdu);
        let taken = matches!(received, Ok(Inbound::Terminate(_)));
        prop_assert!(taken);
    }
}

/// Compares at most `run` consecutive predicted FPDUs with those found. Returns their bytes and
/// their number.
fn predict_run(
    judge: &mut Deframer,
    predictor: &mut Deframer,
    bytes: &[u8],
    run: usize,
) -> Result<(usize, usize), TestCaseError> {
    let (mut taken, mut fpdus) = (0, 0);
    while fpdus < run {
        let predicted = predict(predictor, bytes, taken);
        let right = predicted.is_some_and(|it| it.is_right());
        let predicted = predicted.map(|it| (it.ulpdu(), it.wire_len()));
        match judge.next(&bytes[taken..]) {
            Ok(Step::Fpdu { ulpdu, consumed }) => {
                prop_assert_eq!((predicted, right), (Some((ulpdu, consumed)), true));
                taken += consumed;
                fpdus += 1;
            }
            // A wrong marker is not predicted.
            Err(MpaError::Crc) => {
                prop_assert!(!right);
                break;
            }
            Ok(Step::NeedBytes(_)) | Err(_) => {
                prop_assert_eq!(predicted, None);
                break;
            }
        }
    }
    Ok((taken, fpdus))
}
