//! `STag`s, completion queues, shared receive queues and protection domains that queue pairs of
//! several engines use.

use std::collections::HashMap;

use xwarp::attr::{QpId, RnicCounters};
use xwarp::completion::Arm;
use xwarp::error::{DestroyError, TermCode};
use xwarp::event::{AsyncEvent, AsyncEventKind, EventResource};
use xwarp::memory::PhysicalList;
use xwarp::work::Sgl;
use xwarp::{
    Access, CompletionQueue, QpConfig, QpState, RecvRequest, RemoteAddress, SendRequest,
    SharedReceiveQueue, SrqConfig, WrId,
};
use xwarp_sim_tests::{Done, Sim, SimEnd};

use super::{PAIRS, engine_of, pairs, pairs_of, sim};

/// Code 0x0 of a remote protection error: the `STag` is invalid (RFC 5041 §7.1).
fn invalid_stag() -> TermCode {
    TermCode::ddp_tagged(0)
}

/// Each end at A writes its number to its byte of a region; the numbers of those that are refused.
fn write_all(sim: &mut Sim, pairs: &mut [(SimEnd, SimEnd)], at: RemoteAddress) -> Vec<usize> {
    for (i, (a, _)) in pairs.iter_mut().enumerate() {
        let place = RemoteAddress {
            to: at.to + i as u64,
            ..at
        };
        a.post_write(7, &[u8::try_from(i).unwrap() + 1], place);
    }
    sim.run_until_idle();
    let refused = |(_, b): &(SimEnd, SimEnd)| b.ended_with() == Some(invalid_stag());
    let all = pairs.iter().enumerate();
    all.filter_map(|(i, pair)| refused(pair).then_some(i))
        .collect()
}

#[test]
fn stag_is_valid_on_all_engines_until_it_is_deallocated() {
    let mut sim = sim().expecting(&["drop_refused_segment"]);
    let mut pairs = pairs(&mut sim);
    let region = sim.b().region(PAIRS, Access::all());
    let at = region.remote(0);
    assert_eq!(write_all(&mut sim, &mut pairs, at), [0; 0]);
    let written: Vec<u8> = (1..).take(PAIRS).collect();
    assert_eq!(region.bytes().to_vec(), written);
    region.bytes().fill(0..PAIRS, 0).unwrap();
    let memory = region.bytes().clone();
    region.deallocate().unwrap();
    let everybody: Vec<usize> = (0..PAIRS).collect();
    assert_eq!(write_all(&mut sim, &mut pairs, at), everybody);
    assert_eq!(memory.to_vec(), [0; PAIRS]);
}

/// The first completion of `end` after one more turn of everything.
fn completion_of(sim: &mut Sim, end: &mut SimEnd, request: SendRequest) -> Vec<Done> {
    end.post(request);
    sim.wait_for("a completion", || {
        let done = end.sends();
        (!done.is_empty()).then_some(done)
    })
}

#[test]
fn what_one_engine_registers_and_invalidates_is_so_on_all_when_its_completion_is_polled() {
    let mut sim = sim().expecting(&["drop_refused_segment"]);
    let privileged = QpConfig::default().privileged(true);
    let mut pairs = pairs_of(&mut sim, |sim| sim.b().end(&privileged));
    let memory = sim.b().rnic().allocate_memory(4096).unwrap();
    let list = PhysicalList {
        entry_size: 4096,
        addresses: vec![sim.b().rnic().physical_address(&memory).unwrap()].into(),
        first_byte_offset: 0,
        len: 4096,
    };
    let mut stag = sim.b().pd().allocate_stag(1, true).unwrap();
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let register = stag.fast_register(list, rights);
    let at = RemoteAddress {
        stag: register.stag,
        to: 0,
    };
    let (_, changer) = &mut pairs[3];
    let registered = completion_of(
        &mut sim,
        changer,
        SendRequest::fast_register(WrId(1), register),
    );
    assert_eq!(registered, [Done::fast_register(1)]);
    assert_eq!(write_all(&mut sim, &mut pairs, at), [0; 0]);
    let (_, changer) = &mut pairs[3];
    let invalidated = completion_of(&mut sim, changer, SendRequest::invalidate(WrId(2), at.stag));
    assert_eq!(invalidated, [Done::invalidate(2)]);
    let everybody: Vec<usize> = (0..PAIRS).collect();
    assert_eq!(write_all(&mut sim, &mut pairs, at), everybody);
}

/// Pairs of connected ends. Those at B share one completion queue of `entries` entries.
fn pairs_on_one_cq(sim: &mut Sim, entries: usize) -> (Vec<(SimEnd, SimEnd)>, CompletionQueue) {
    let cq = sim.b().rnic().create_cq(entries).unwrap();
    let config = QpConfig::default();
    let pairs = pairs_of(sim, |sim| {
        let mut end = sim.b().end(&config);
        end.qp = sim.b().pd().create_qp(&config, &cq, &cq).unwrap();
        end
    });
    (pairs, cq)
}

#[test]
fn completion_queue_has_all_completions_of_all_engines_and_each_queue_pairs_in_order() {
    const MESSAGES: u64 = 30;
    let mut sim = sim();
    let (mut pairs, mut cq) = pairs_on_one_cq(&mut sim, 1000);
    for (a, b) in &mut pairs {
        (0..MESSAGES).for_each(|i| b.post_recv(i, 1));
        (0..MESSAGES).for_each(|i| a.post_send(i, b"x"));
    }
    let mut polled: HashMap<QpId, Vec<u64>> = HashMap::new();
    let mut resized = false;
    sim.run_until("all completions", || {
        while let Some(completion) = cq.poll().unwrap() {
            polled
                .entry(completion.qp)
                .or_default()
                .push(completion.wr_id.0);
        }
        let count: usize = polled.values().map(Vec::len).sum();
        if count > 100 && !resized {
            cq.resize(600).unwrap();
            resized = true;
        }
        count == PAIRS * usize::try_from(MESSAGES).unwrap()
    });
    let in_order: Vec<u64> = (0..MESSAGES).collect();
    assert!(polled.values().all(|ids| *ids == in_order), "{polled:?}");
    assert!(!cq.overflowed());
}

#[test]
fn runs_of_completions_are_polled_from_all_engines_in_turn() {
    let mut sim = sim();
    let (mut pairs, mut cq) = pairs_on_one_cq(&mut sim, 1000);
    for (a, b) in &mut pairs {
        (0..8).for_each(|i| b.post_recv(i, 1));
        (0..8).for_each(|i| a.post_send(i, b"x"));
    }
    sim.run_until_idle();
    let engine = |qp: QpId| {
        let of = pairs.iter().find(|(_, b)| b.qp.id() == qp);
        engine_of(&of.unwrap().1)
    };
    let mut seen = Vec::new();
    for _ in 0..4 {
        cq.poll_each(8, |completion| seen.push(engine(completion.qp)))
            .unwrap();
    }
    seen.dedup();
    let mut different = seen.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), 4, "no engine waits for another: {seen:?}");
}

/// What does not fit is seen before anything is changed, whichever engine has it.
#[test]
fn completion_queue_becomes_no_smaller_than_what_all_engines_have_put_there() {
    let mut sim = sim();
    let (mut pairs, mut cq) = pairs_on_one_cq(&mut sim, 100);
    for (a, b) in &mut pairs {
        b.post_recv(1, 1);
        a.post_send(1, b"x");
    }
    sim.run_until_idle();
    assert!(cq.resize(PAIRS - 1).is_err());
    assert!(cq.resize(PAIRS).is_ok());
    assert!(cq.resize(PAIRS - 1).is_err());
    let polled = std::iter::from_fn(|| cq.poll().unwrap()).count();
    assert_eq!(polled, PAIRS);
}

#[test]
fn armed_queue_tells_once_however_many_engines_complete_there() {
    let mut sim = sim();
    let channel = sim.b().rnic().create_completion_channel().unwrap();
    let cq = sim.b().rnic().create_cq_on(&channel, 100).unwrap();
    let (sender, calls) = std::sync::mpsc::channel();
    let tell = move |cq| sender.send(cq).unwrap();
    let handler = sim.b().rnic().add_completion_handler(tell).unwrap();
    let told = sim.b().rnic().create_cq_with(100, handler).unwrap();
    let config = QpConfig::default();
    let mut pairs = pairs_of(&mut sim, |sim| {
        let mut end = sim.b().end(&config);
        end.qp = sim.b().pd().create_qp(&config, &told, &cq).unwrap();
        end
    });
    for round in 0..3 {
        cq.arm(Arm::Next).unwrap();
        told.arm(Arm::Next).unwrap();
        for (a, b) in &mut pairs {
            b.post_recv(round, 1);
            a.post_recv(round, 1);
            a.post_send(round, b"x");
            b.post_send(round, b"x");
        }
        sim.run_until_idle();
        assert_eq!(channel.try_next().unwrap(), Some(cq.id()));
        assert_eq!(channel.try_next().unwrap(), None);
        assert_eq!(calls.try_iter().collect::<Vec<_>>(), [told.id()]);
    }
}

/// Ends at B that all take buffers from one queue.
fn pairs_on_one_srq(sim: &mut Sim, srq: &SharedReceiveQueue) -> Vec<(SimEnd, SimEnd)> {
    pairs_of(sim, |sim| {
        let mut end = sim.b().end(&QpConfig::default());
        let (send_cq, recv_cq) = end.cqs();
        let pd = sim
            .b()
            .pd()
            .create_qp_with_srq(&QpConfig::default(), send_cq, recv_cq, srq);
        end.qp = pd.unwrap();
        end
    })
}

#[test]
fn shared_receive_queue_gives_each_buffer_once_and_tells_its_limit_once() {
    const ROUNDS: u64 = 5;
    let buffers = PAIRS as u64 * ROUNDS;
    let mut sim = sim();
    let config = SrqConfig::default().depth(100).limit(20);
    let mut srq = sim.b().pd().create_srq(config).unwrap();
    let mut pairs = pairs_on_one_srq(&mut sim, &srq);
    let region = sim.b().region(100, Access::LOCAL_WRITE);
    for id in 0..buffers {
        let request = RecvRequest::new(WrId(id), region.local(id, 1));
        srq.post_recv(request).unwrap();
    }
    for round in 0..ROUNDS {
        for (i, (a, _)) in pairs.iter_mut().enumerate() {
            a.post_send(round, &[u8::try_from(i).unwrap() + 1]);
        }
    }
    sim.run_until_idle();
    let bytes = region.bytes().to_vec();
    let mut taken = Vec::new();
    for (i, (_, b)) in pairs.iter_mut().enumerate() {
        for done in b.receives() {
            assert_eq!(
                usize::from(bytes[usize::try_from(done.wr_id).unwrap()]),
                i + 1
            );
            taken.push(done.wr_id);
        }
    }
    taken.sort_unstable();
    assert_eq!(taken, (0..buffers).collect::<Vec<_>>());
    let limit = AsyncEvent::new(
        EventResource::Srq(srq.id()),
        AsyncEventKind::SrqLimitReached,
    );
    assert_eq!(sim.b().other_events(), [limit]);
}

#[test]
fn nothing_is_destroyed_that_a_queue_pair_of_any_engine_needs() {
    let sim = sim();
    let pd = sim.b().rnic().allocate_pd().unwrap();
    let mut cq = sim.b().rnic().create_cq(10).unwrap();
    let mut srq = pd.create_srq(SrqConfig::default()).unwrap();
    let config = QpConfig::default();
    let mut qps = Vec::new();
    for _ in 0..5 {
        qps.push(pd.create_qp_with_srq(&config, &cq, &cq, &srq).unwrap());
    }
    let mut pd = Some(pd);
    for qp in qps {
        let refused = cq.destroy().err().unwrap();
        assert!(matches!(refused.error, DestroyError::InUse));
        cq = *refused.object;
        let refused = srq.destroy().unwrap_err();
        assert!(matches!(refused.error, DestroyError::InUse));
        srq = *refused.object;
        let refused = pd.take().unwrap().deallocate().unwrap_err();
        assert!(matches!(refused.error, DestroyError::DomainInUse(_)));
        pd = Some(*refused.object);
        qp.destroy().unwrap();
    }
    assert!(cq.destroy().is_ok());
    assert!(srq.destroy().is_ok());
    pd.unwrap().deallocate().unwrap();
}

#[test]
fn queue_pairs_of_all_engines_have_names_of_their_own_and_count_together() {
    let mut sim = sim();
    let mut pairs = pairs(&mut sim);
    let mut numbers: Vec<u32> = pairs.iter().map(|(a, _)| a.qp.id().number()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), PAIRS);
    let before = sim.a().rnic().counters().unwrap();
    for (a, b) in &mut pairs {
        b.post_recv(0, 0);
        a.post(SendRequest::send(WrId(0), Sgl::new()));
    }
    sim.run_until_idle();
    let after = sim.a().rnic().counters().unwrap();
    let messages = |it: &RnicCounters| it.rdma.fpdus_out - it.rdma.first_fpdu_retries;
    assert_eq!(messages(&after) - messages(&before), PAIRS as u64);
    assert!(after.io.tx_frames - before.io.tx_frames >= PAIRS as u64);
    assert!(after.tcp.segments_out - before.tcp.segments_out >= PAIRS as u64);
    assert!(
        pairs
            .iter()
            .all(|(a, b)| (a.state(), b.state()) == (QpState::Rts, QpState::Rts))
    );
}
