//! Single calls that post and poll, of the native verbs and of the C interface that unmodified
//! programs use. What is counted is the call with what its caller does: the work request is made,
//! and the completion's status is looked at. The engine turns in between, uncounted.

use crate::hosts::BURST;

/// Rounds that are counted, of [`BURST`] calls each.
const ROUNDS: usize = 25;
/// Rounds before them: the congestion window has its size then.
const WARM_UP: usize = 50;
/// Bytes of a message.
pub(crate) const LEN: u32 = 64;

/// What becomes of the work that a round has posted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The requester's Writes are done.
    Done,
    /// The responder sends into the requester's buffers.
    Received,
    /// The queue pair is in Error, and flushes it.
    Flushed,
}

/// Whose calls are counted: a connected queue pair with its completion queue, and a peer.
pub(crate) trait Caller: Sized + 'static {
    /// The rounds, in their order.
    const ROUNDS: &'static [Round<Self>];

    fn new() -> Self;
    /// Lets the engines turn until the work has completed.
    fn settle(&mut self, fate: Fate);
}

/// [`BURST`] requests, from posting to polling.
pub(crate) struct Round<C> {
    pub(crate) fate: Fate,
    pub(crate) post: Calls<C>,
    pub(crate) poll: Calls<C>,
}

/// Calls under a name that callgrind knows, and the same without.
pub(crate) struct Calls<C> {
    pub(crate) name: Option<&'static str>,
    pub(crate) counted: fn(&mut C),
    pub(crate) uncounted: fn(&mut C),
}

/// Counts all of a caller: [`MESSAGES`](crate::bursts::MESSAGES) requests of each case.
pub(crate) fn count<C: Caller>() {
    const { assert!(ROUNDS * BURST == crate::bursts::MESSAGES) };
    let mut caller = C::new();
    for round in C::ROUNDS {
        for number in 0..WARM_UP + ROUNDS {
            let calls = [&round.post, &round.poll];
            let [post, poll] = if number < WARM_UP {
                calls.map(|calls| calls.uncounted)
            } else {
                calls.map(|calls| calls.counted)
            };
            post(&mut caller);
            caller.settle(round.fate);
            poll(&mut caller);
        }
    }
}

/// What is counted of it.
pub(crate) fn names<C: Caller>() -> impl Iterator<Item = &'static str> {
    let calls = C::ROUNDS
        .iter()
        .flat_map(|round| [&round.post, &round.poll]);
    calls.filter_map(|calls| calls.name)
}

/// Functions that callgrind names, each of which does what another one does.
macro_rules! counted {
    ($caller:ty: $($name:ident = $work:ident;)*) => { $(
        #[inline(never)]
        fn $name(caller: &mut $caller) {
            // Else functions that differ in their names only are made one.
            std::hint::black_box(stringify!($name));
            $work(caller);
        }
    )* };
}
pub(crate) use counted;

/// Calls that are counted under a name, or never.
macro_rules! calls {
    ($name:ident = $work:ident) => {
        crate::calls::Calls {
            name: Some(stringify!($name)),
            counted: $name,
            uncounted: $work,
        }
    };
    ($work:ident) => {
        crate::calls::Calls {
            name: None,
            counted: $work,
            uncounted: $work,
        }
    };
}
pub(crate) use calls;
