//! Log lines at debug level: one for each change of a connection's state.

use std::cell::RefCell;

use ::log::{LevelFilter, Log, Metadata, Record};

use crate::net::Net;

thread_local! {
    /// Lines logged by this thread: other tests log, too.
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct Lines;

impl Log for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        LINES.with_borrow_mut(|lines| lines.push(record.args().to_string()));
    }

    fn flush(&self) {}
}

#[test]
fn each_change_of_state_is_logged_with_the_addresses() {
    ::log::set_logger(&Lines).unwrap();
    ::log::set_max_level(LevelFilter::Debug);
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    let ends = [net.a.conn(a).local_addr(), net.b.conn(b).local_addr()];
    net.a.stack.close(a, net.now);
    net.settle();
    net.b.stack.close(b, net.now);
    net.settle();
    let lines = LINES.take();
    let of = |from: usize| -> Vec<_> {
        let prefix = format!("TCP connection from {} to {}: ", ends[from], ends[1 - from]);
        let changes = lines.iter().filter_map(|line| line.strip_prefix(&prefix));
        changes.collect()
    };
    assert_eq!(
        of(0),
        [
            "CLOSED to SYN-SENT",
            "SYN-SENT to ESTABLISHED",
            "ESTABLISHED to FIN-WAIT-1",
            "FIN-WAIT-1 to FIN-WAIT-2",
            "FIN-WAIT-2 to TIME-WAIT",
        ]
    );
    assert_eq!(
        of(1),
        [
            "CLOSED to SYN-RECEIVED",
            "SYN-RECEIVED to ESTABLISHED",
            "ESTABLISHED to CLOSE-WAIT",
            "CLOSE-WAIT to LAST-ACK",
            "LAST-ACK to CLOSED",
        ]
    );
    assert_eq!(lines.len(), 10);
}
