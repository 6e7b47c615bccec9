//! Refusals that sections `# Errors` of crate xwarp name, and that no scene of the other tests
//! provokes.

use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::error::{ConnectError, CopyError, ListenError, RegisterError, RnicUnavailable};
use xwarp::memory::RegionSpec;
use xwarp::stream::LlpStream;
use xwarp::{Access, CompletionQueue, QpConfig, QpState, QueuePair, Rnic, SendRequest, WrId};
use xwarp_sim_tests::{Host, Side, needs_link};

use super::sim;

const PORT: u16 = 7471;
const LIMIT: Duration = Duration::from_secs(5);

/// What a verb was refused with, in words.
fn refusal<T, E: ToString>(done: Result<T, E>) -> Option<String> {
    done.err().map(|error| error.to_string())
}

/// Fails unless all of these verbs say that the RNIC was closed.
fn assert_closed(refusals: &[(&str, Option<String>)]) {
    let closed = RnicUnavailable::Closed.to_string();
    for (verb, refusal) in refusals {
        assert_eq!(refusal.as_deref(), Some(closed.as_str()), "{verb}");
    }
}

fn refusals_of_rnic(rnic: &Rnic, host: &Host, peer: &Host) -> Vec<(&'static str, Option<String>)> {
    let at = peer.at(PORT);
    vec![
        (
            "create_completion_channel",
            refusal(rnic.create_completion_channel()),
        ),
        (
            "listen_streams",
            refusal(rnic.listen_streams(host.at(PORT))),
        ),
        ("connect_stream", refusal(rnic.connect_stream(at, LIMIT))),
        (
            "begin_connect_stream",
            refusal(rnic.begin_connect_stream(at, LIMIT)),
        ),
        (
            "set_event_handler",
            refusal(rnic.set_event_handler(|_, _| ())),
        ),
        ("clear_event_handler", refusal(rnic.clear_event_handler())),
        ("progress", refusal(rnic.progress())),
        ("wait_readable", refusal(rnic.wait_readable(&[], LIMIT))),
        ("next_deadline", refusal(rnic.next_deadline())),
        ("allocate_stag", refusal(host.pd().allocate_stag(1, true))),
        (
            "allocate_buffers",
            refusal(host.pd().allocate_buffers(1, 8)),
        ),
    ]
}

fn refusals_of_queue_pair(qp: &mut QueuePair) -> Vec<(&'static str, Option<String>)> {
    vec![
        ("qp.allocate", refusal(qp.allocate(8, Access::all()))),
        ("qp.load", refusal(qp.load())),
        ("qp.begin_disconnect", refusal(qp.begin_disconnect())),
        ("qp.disconnect", refusal(qp.disconnect(LIMIT))),
    ]
}

fn refusals_of_queue(cq: &mut CompletionQueue) -> Vec<(&'static str, Option<String>)> {
    let mut into = Vec::new();
    vec![
        ("cq.poll", refusal(cq.poll())),
        ("cq.poll_into", refusal(cq.poll_into(&mut into))),
        ("cq.wait_or", refusal(cq.wait_or(&[], LIMIT))),
    ]
}

fn refusals_of_stream(stream: &mut LlpStream) -> Vec<(&'static str, Option<String>)> {
    vec![
        (
            "stream.wait_established",
            refusal(stream.wait_established(LIMIT)),
        ),
        ("stream.read", refusal(stream.read(&mut [0]))),
        (
            "stream.read_exact",
            refusal(stream.read_exact(&mut [0], LIMIT)),
        ),
        ("stream.write_all", refusal(stream.write_all(b"x", LIMIT))),
    ]
}

#[test]
fn closed_rnic_is_named_by_every_handle() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let (host, peer) = (a.host().clone(), b.host().clone());
    let (rnic, pd) = (host.rnic(), host.pd());
    let (channel, handler) = (
        rnic.create_completion_channel().unwrap(),
        rnic.add_completion_handler(|_| ()).unwrap(),
    );
    let (stag, window) = (
        pd.allocate_stag(1, true).unwrap(),
        pd.allocate_window().unwrap(),
    );
    let mut idle = host.end(&QpConfig::default());
    let mut stream = rnic.connect_stream(peer.at(PORT), LIMIT).unwrap();
    rnic.close().unwrap();
    sim.remove(Side::A);
    assert_closed(&refusals_of_rnic(rnic, &host, &peer));
    assert_closed(&refusals_of_queue_pair(&mut idle.qp));
    let attempt = idle.qp.begin_connect(peer.at(PORT), b"", LIMIT).err();
    let in_error = matches!(attempt, Some(ConnectError::InvalidState(QpState::Error)));
    assert!(in_error, "{attempt:?}");
    assert_closed(&refusals_of_queue(a.recv_cq()));
    assert_closed(&[
        ("create_cq_on", refusal(rnic.create_cq_on(&channel, 1))),
        ("create_cq_with", refusal(rnic.create_cq_with(1, handler))),
        (
            "replace_completion_handler",
            refusal(rnic.replace_completion_handler(handler, |_| ())),
        ),
        ("stag.query", refusal(stag.query())),
        (
            "stag.deallocate",
            refusal(stag.deallocate().map_err(|it| it.error)),
        ),
        ("window.deallocate", refusal(window.deallocate())),
    ]);
    assert_closed(&refusals_of_stream(&mut stream));
}

#[test]
fn request_of_a_closed_rnic_is_answered_by_nobody() {
    for answer in ["accept", "reject", "reject_for_ord"] {
        let mut sim = sim();
        let (mut a, mut b) = (
            sim.a().end(&QpConfig::default()),
            sim.b().end(&QpConfig::default()),
        );
        let at = sim.b().at(PORT);
        let mut listener = sim.b().rnic().listen(at).unwrap();
        let _connecting = a.qp.begin_connect(at, b"", LIMIT).unwrap();
        let request = sim.wait_for("a request", || listener.try_accept().unwrap());
        b.host().rnic().close().unwrap();
        sim.remove(Side::B);
        let refused = match answer {
            "accept" => request.accept(&mut b.qp, b""),
            "reject" => request.reject(b""),
            _ => request.reject_for_ord(1, b""),
        };
        assert_closed(&[(answer, refusal(refused))]);
    }
}

#[test]
fn full_region_area_is_named_by_all_who_take_from_it() {
    let sim = sim();
    let (host, end) = (sim.a(), sim.a().end(&QpConfig::default()));
    let (rnic, pd) = (host.rnic(), host.pd());
    let len = usize::MAX / 2;
    let text = refusal(rnic.allocate_memory(len)).expect("a refusal");
    for refused in [
        pd.allocate(len, Access::LOCAL_READ).err(),
        end.qp.allocate(len, Access::LOCAL_READ).err(),
    ] {
        assert!(
            matches!(refused, Some(RegisterError::Full(_))),
            "{refused:?}"
        );
        assert_eq!(refused.map(|it| it.to_string()), Some(text.clone()));
    }
    let refused = pd.allocate_buffers(1 << 20, 1 << 30).err();
    assert!(
        matches!(refused, Some(RegisterError::Full(_))),
        "{refused:?}"
    );
    assert!(
        pd.allocate(8, Access::LOCAL_READ).is_ok(),
        "smaller ones fit"
    );
}

#[test]
fn number_of_stags_has_an_end_for_all_who_take_one() {
    let sim = sim();
    let (host, end) = (sim.a(), sim.a().end(&QpConfig::default()));
    let pd = host.pd();
    let region = pd.allocate(8, Access::all()).unwrap();
    let spec = RegionSpec::new(Access::LOCAL_READ);
    let mut windows: Vec<_> = std::iter::from_fn(|| pd.allocate_window().ok()).collect();
    for refused in [
        pd.allocate_window().err(),
        pd.allocate(8, Access::LOCAL_READ).err(),
        pd.register(region.bytes().clone(), Access::LOCAL_READ)
            .err(),
        end.qp
            .register(region.bytes().clone(), Access::LOCAL_READ)
            .err(),
        region.share(pd, &spec).err(),
        pd.allocate_stag(1, true).err(),
        pd.allocate_buffers(1, 8).err(),
    ] {
        assert!(
            matches!(refused, Some(RegisterError::TooManyStags)),
            "{refused:?}"
        );
    }
    drop(windows.pop());
    assert!(pd.allocate_window().is_ok());
}

#[test]
fn region_that_is_not_valid_or_is_shared_is_not_registered_anew() {
    let mut sim = sim();
    let (mut a, _b) = sim.connected_pair();
    let (host, spec) = (a.host().clone(), RegionSpec::new(Access::LOCAL_READ));
    let pd = host.pd();
    let region = pd.allocate(8, Access::all()).unwrap();
    let shared = region.share(pd, &spec).unwrap();
    let memory = region.bytes().clone();
    let refused = shared.reregister(pd, memory, &spec).unwrap_err();
    assert!(
        matches!(refused.error, RegisterError::InvalidStag),
        "{refused:?}"
    );
    let other = a.region(8, Access::all());
    a.post(SendRequest::invalidate(WrId(1), other.stag()));
    sim.run_until_idle();
    let refused = other.share(pd, &spec).err();
    assert!(
        matches!(refused, Some(RegisterError::InvalidStag)),
        "{refused:?}"
    );
    drop((region, a.qp.modify(QpChange::to(QpState::Error))));
}

#[test]
fn listener_is_refused_elsewhere_and_twice() {
    needs_link!("both machines have one address");
    let sim = sim();
    let (rnic, at) = (sim.a(), sim.a().at(PORT));
    let rnic = rnic.rnic();
    let _listener = rnic.listen(at).unwrap();
    // The host has given its port to the first one.
    for refused in [rnic.listen(at).err(), rnic.listen_streams(at).err()] {
        assert!(matches!(refused, Some(ListenError::Host(_))), "{refused:?}");
    }
    let elsewhere = sim.b().at(PORT);
    for refused in [
        rnic.listen(elsewhere).err(),
        rnic.listen_streams(elsewhere).err(),
    ] {
        let named = matches!(&refused, Some(ListenError::NotOurs { address, .. }) if *address == elsewhere.ip());
        assert!(named, "{refused:?}");
    }
}

#[test]
fn attempt_ends_with_its_own_address() {
    needs_link!("a switch's interface has no link, networks or neighbours that change");
    let mut sim = sim();
    let mut a = sim.a().end(&QpConfig::default());
    let nobody = sim.b().at(PORT);
    sim.remove(Side::B);
    let mut connecting = a.qp.begin_connect(nobody, b"", LIMIT).unwrap();
    sim.run_for(Duration::from_millis(1));
    sim.a().change_interface(|link| link.networks.clear());
    let outcome = sim.wait_for("an end", || connecting.try_finish());
    let own = Side::A.address();
    assert!(
        matches!(outcome, Err(ConnectError::AddressLost(it)) if it == own),
        "{outcome:?}"
    );
}

#[test]
fn copies_beyond_a_buffer_are_refused_and_change_nothing() {
    let sim = sim();
    let host = sim.a();
    let mut buffers = host.pd().allocate_buffers(1, 8).unwrap();
    let buffer = &mut buffers[0];
    buffer.write(0, b"12345678").unwrap();
    let mut into = [0; 4];
    for refused in [
        buffer.read(5, &mut into),
        buffer.write(5, b"abcd"),
        buffer.write(usize::MAX, b"abcd"),
        buffer.fill(9..10, 0),
    ] {
        assert!(
            matches!(refused, Err(CopyError::OutOfBounds(_))),
            "{refused:?}"
        );
    }
    assert_eq!((buffer.to_vec(), into), (b"12345678".to_vec(), [0; 4]));
}
