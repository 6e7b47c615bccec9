//! Host questions: requests of an engine to its host, which the core cannot make itself.
//!
//! The thread that runs the engine makes them: for ports of addresses that are configured again,
//! for other local ports, for paths and their metrics. It also collects the results of next hop
//! searches.

use std::os::fd::AsFd;

use xwarp_driver::DescriptorSet;
use xwarp_rnic::engine::{Engine, HostQuestion};
use xwarp_rnic::model::ConnectError;
use xwarp_rnic::tables::SearchId;

/// Sends all requests of the engine to the host, and passes the answers to the engine.
pub(super) fn ask_host(engine: &mut Engine) {
    let Some(host) = engine.host() else {
        return;
    };
    while let Some(question) = engine.take_question() {
        match question {
            HostQuestion::Port(wanted) => {
                let local = wanted.local();
                let answer = host.open_port(local.ip(), local.port());
                engine.give_port(wanted, answer);
            }
            HostQuestion::OtherPort(wanted) => {
                let (address, remote) = (wanted.local().ip(), wanted.remote());
                let answer = host.open_port_towards(address, remote, engine.index());
                engine.give_other_port(&wanted, answer);
            }
            HostQuestion::Path(path) => {
                let (local, remote) = (path.local(), path.remote());
                let answer = host.present_hop(local, remote, path.is_silent());
                engine.give_path(&path, answer);
            }
            HostQuestion::Metrics(path) => {
                let answer = host.metrics(path.local(), path.remote());
                engine.give_metrics(&path, answer);
            }
        }
    }
}

/// Adds the descriptors of searches that have begun to `searches`, which wakes a sleeping thread.
pub(super) fn watch_begun_searches(engine: &mut Engine, searches: &DescriptorSet) {
    while let Some(id) = engine.take_begun_search() {
        let SearchId(name) = id;
        let watched = engine
            .search(id)
            .map(|it| searches.watch_as(it.as_fd(), name));
        if let Some(Err(error)) = watched {
            let error = ConnectError::Resources(error.to_string());
            engine.give_next_hop(id, Err(error));
        }
    }
}

/// Passes the results of searches to the engine. Returns the number of results.
pub(super) fn take_next_hops(engine: &mut Engine, searches: &DescriptorSet) -> usize {
    let ready = match searches.ready() {
        Ok(ready) => ready,
        Err(error) => {
            log::error!("searches for next hops cannot be waited for: {error}");
            return 0;
        }
    };
    let mut found = 0;
    for id in ready.map(SearchId) {
        let answer = engine.search(id).and_then(|it| it.poll().transpose());
        if let Some(answer) = answer {
            engine.give_next_hop(id, answer.map_err(Into::into));
            found += 1;
        }
    }
    found
}
