//! Sharing (`rdma/verbs/src/runtime/sharing.rs`): threads that wait turn an inline engine or sleep,
//! as other threads do, and an event loop waits for it, too.
//!
//! A frame is the work of an engine, for two turns, and has it set a deadline. Time passes when a
//! thread sleeps no longer than until then. Each model runs with frames that the kernel announces,
//! and with frames whose sender rings the doorbell: then threads sleep on its word.

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use loom::thread;

use super::explore_bounded;
use crate::entry::lock;
use crate::sharing::{Bed, Shared, Sharing, Turned, Waiting, turn_or_sleep, turn_or_sleep_beside};
use crate::sleep_flag::{SleepFlag, WokenBy};

/// What the kernel knows of the engine's descriptor, and of those that the callers wait for
/// besides.
#[derive(Default)]
struct Descriptors {
    /// Of the doorbell.
    rings: usize,
    /// Frames make the descriptor readable.
    watches_frames: bool,
    frames: usize,
    timer_runs: bool,
    /// How often the threads were woken that sleep on the doorbell's word.
    woken: usize,
    /// Whether all of a frame was received, and whether the deadline has come. A caller that waits
    /// for that has a descriptor of its own, which stays readable.
    told: [bool; 2],
}

#[derive(Default)]
struct Kernel {
    descriptors: Mutex<Descriptors>,
    changed: Condvar,
    time: AtomicBool,
}

impl Kernel {
    fn change<R>(&self, change: impl FnOnce(&mut Descriptors) -> R) -> R {
        let changed = change(&mut lock(&self.descriptors));
        self.changed.notify_all();
        changed
    }

    fn is_readable(descriptors: &Descriptors) -> bool {
        let has_frames = descriptors.watches_frames && descriptors.frames > 0;
        descriptors.rings > 0 || has_frames || descriptors.timer_runs
    }

    /// As a doorbell does that wakes.
    fn raise(&self, by: Option<WokenBy>) {
        let Some(by) = by else { return };
        self.change(|it| {
            it.rings += usize::from(by.descriptor);
            it.woken += usize::from(by.word);
        });
    }

    /// As futex does, of the doorbell's word and perhaps another one.
    fn sleep_on_word(&self, flag: &SleepFlag, own: Option<usize>) {
        let mut descriptors = lock(&self.descriptors);
        if flag.to_sleep_on().is_none() {
            return;
        }
        let woken = descriptors.woken;
        while descriptors.woken == woken && own.is_none_or(|own| !descriptors.told[own]) {
            descriptors = self.changed.wait(descriptors).unwrap();
        }
    }

    /// As poll does, of the engine's descriptor and perhaps another one.
    fn sleep(&self, own: Option<usize>) {
        let mut descriptors = lock(&self.descriptors);
        while !Self::is_readable(&descriptors) && own.is_none_or(|own| !descriptors.told[own]) {
            descriptors = self.changed.wait(descriptors).unwrap();
        }
        if descriptors.timer_runs {
            self.time.store(true, Ordering::SeqCst);
        }
    }
}

/// What callers wait for: all of a frame, and the deadline that it has set.
const FRAME: usize = 0;
const DEADLINE: usize = 1;

/// How long a caller may sleep.
enum Limit {
    UntilDeadline,
    ForEver,
}

#[expect(clippy::struct_excessive_bools, reason = "each is of another matter")]
struct Engine {
    kernel: Arc<Kernel>,
    flag: Arc<SleepFlag>,
    /// What is left of a frame for the next turn.
    has_rest: bool,
    has_deadline: bool,
    has_ended: bool,
    /// The host has no descriptor left, once.
    cannot_arm: bool,
    /// Who sends a frame rings the doorbell.
    rings_for_all: bool,
}

impl Engine {
    /// As a wait set.
    fn arm_set(&self, watches_frames: bool, timer_runs: bool, idle: bool, by: WokenBy) {
        self.kernel.change(|it| {
            (it.watches_frames, it.timer_runs) = (watches_frames, timer_runs);
        });
        self.arm_by(idle, by);
    }

    fn arm_by(&self, idle: bool, by: WokenBy) {
        self.flag.announce(by);
        let has_frames = || self.rings_for_all && self.kernel.change(|it| it.frames > 0);
        if !idle || has_frames() {
            self.flag.awake();
            self.kernel.raise(Some(by));
        }
    }
}

impl Shared for Engine {
    type Limit = Limit;
    type Error = ();

    fn turn(&mut self) -> usize {
        if self.has_ended {
            return 0;
        }
        let has_rest = self.has_rest;
        let is_due = self.has_deadline && self.kernel.time.load(Ordering::SeqCst);
        let frames = self.kernel.change(|it| {
            it.told[FRAME] |= has_rest;
            it.told[DEADLINE] |= is_due;
            std::mem::take(&mut it.frames)
        });
        self.has_rest = frames > 0;
        self.has_deadline = (self.has_deadline && !is_due) || has_rest;
        frames + usize::from(is_due) + usize::from(has_rest)
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn limit(&mut self) -> Option<Limit> {
        let limit = if self.has_deadline {
            Limit::UntilDeadline
        } else {
            Limit::ForEver
        };
        (!self.has_ended).then_some(limit)
    }

    fn rings_for_all(&self) -> bool {
        self.rings_for_all
    }

    fn arm(&mut self, idle: bool, waiting: Waiting) -> Result<(), ()> {
        let word = waiting.on_word > 0;
        if !waiting.in_loop && waiting.on_descriptor == 0 {
            self.arm_by(idle, WokenBy::WORD);
            return Ok(());
        }
        self.kernel.change(|it| it.rings = 0);
        if std::mem::take(&mut self.cannot_arm) {
            return Err(());
        }
        let by = WokenBy {
            descriptor: true,
            word,
        };
        let timer_runs = waiting.in_loop && self.has_deadline;
        self.arm_set(!self.rings_for_all, timer_runs, idle, by);
        Ok(())
    }

    fn open(&mut self, waiting: Waiting) -> Result<(), ()> {
        let by = WokenBy {
            descriptor: true,
            word: waiting.on_word > 0,
        };
        self.arm_set(false, false, false, by);
        Ok(())
    }

    fn ring(&self) {
        self.kernel.raise(self.flag.must_wake());
    }
}

/// An RNIC with an inline engine.
struct Rnic {
    sharing: Mutex<Sharing<Engine>>,
    kernel: Arc<Kernel>,
    flag: Arc<SleepFlag>,
    rings_for_all: bool,
}

impl Rnic {
    fn new(rings_for_all: bool) -> Arc<Self> {
        let (kernel, flag) = (Arc::new(Kernel::default()), Arc::new(SleepFlag::new()));
        let engine = Engine {
            kernel: Arc::clone(&kernel),
            flag: Arc::clone(&flag),
            has_rest: false,
            has_deadline: false,
            has_ended: false,
            cannot_arm: false,
            rings_for_all,
        };
        let sharing = Mutex::new(Sharing::new(engine).unwrap());
        Arc::new(Self {
            sharing,
            kernel,
            flag,
            rings_for_all,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Sharing<Engine>> {
        lock(&self.sharing)
    }

    #[expect(clippy::unnecessary_wraps, reason = "as a sleep may fail")]
    fn sleep(&self, limit: &Limit, bed: Bed, own: Option<usize>) -> Result<(), ()> {
        match (limit, bed) {
            (Limit::UntilDeadline, _) => self.kernel.time.store(true, Ordering::SeqCst),
            (Limit::ForEver, Bed::Descriptor) => self.kernel.sleep(own),
            (Limit::ForEver, Bed::Word) => self.kernel.sleep_on_word(&self.flag, own),
        }
        Ok(())
    }

    fn has(&self, what: usize) -> bool {
        lock(&self.kernel.descriptors).told[what]
    }

    fn is_readable(&self) -> bool {
        Kernel::is_readable(&lock(&self.kernel.descriptors))
    }

    fn deliver(&self) {
        self.kernel.change(|it| it.frames += 1);
        if self.rings_for_all {
            self.kernel.raise(self.flag.must_wake());
        }
    }

    /// A verb that sets a deadline.
    fn set_deadline(&self) {
        let mut sharing = self.lock();
        sharing.shared_mut().has_deadline = true;
        sharing.settle();
    }

    fn close(&self) {
        let ((), closed) = self.lock().close(|engine| engine.has_ended = true);
        closed.unwrap();
    }

    /// As `Control::wait_until_or` does.
    fn wait(&self, what: usize) {
        let mut has_turned = false;
        while !self.has(what) && !self.lock().shared().has_ended() {
            let sleep = |limit, bed| self.sleep(&limit, bed, Some(what));
            turn_or_sleep(|| self.lock(), Bed::Word, sleep).unwrap();
            has_turned = true;
        }
        if has_turned {
            self.lock().leave().unwrap();
        }
    }

    /// As an event loop does.
    fn run_loop(&self, until: usize) {
        loop {
            self.kernel.sleep(None);
            self.lock().progress().unwrap();
            if self.has(until) {
                return;
            }
        }
    }

    /// As the thread of an assisted engine does. Another thread that has the engine goes on.
    fn assist(&self) {
        let mut counted = None;
        loop {
            let sleep = |limit, bed| self.sleep(&limit, bed, None);
            let try_lock = || self.sharing.try_lock().ok();
            match turn_or_sleep_beside(try_lock, &mut counted, sleep).unwrap() {
                Turned::Ended => return,
                Turned::On => {}
                Turned::Elsewhere => thread::yield_now(),
            }
        }
    }

    /// As a caller does whose engine has a thread.
    fn wait_aside(&self, what: usize) {
        let mut descriptors = lock(&self.kernel.descriptors);
        while !descriptors.told[what] {
            descriptors = self.kernel.changed.wait(descriptors).unwrap();
        }
    }
}

/// Runs `other` beside a thread that waits, which must end by that. The model ends in a deadlock if
/// it sleeps on.
fn beside(
    waits: impl Fn(&Rnic) + Send + Sync + 'static,
    other: impl Fn(&Rnic) + Send + Sync + 'static,
) -> impl Fn(bool) -> Arc<Rnic> + Send + Sync + 'static {
    let waits = std::sync::Arc::new(waits);
    move |rings_for_all| {
        let rnic = Rnic::new(rings_for_all);
        let waiter = {
            let (rnic, waits) = (Arc::clone(&rnic), std::sync::Arc::clone(&waits));
            thread::spawn(move || waits(&rnic))
        };
        other(&rnic);
        waiter.join().unwrap();
        assert_eq!(rnic.lock().sleepers(), 0);
        rnic
    }
}

/// Explores a model with both kinds of frames.
fn explore_both(model: impl Fn(bool) + Send + Sync + 'static) {
    let model = std::sync::Arc::new(model);
    for rings_for_all in [false, true] {
        let model = std::sync::Arc::clone(&model);
        explore_bounded(move || model(rings_for_all));
    }
}

/// A caller waits for `what` beside `other`.
fn waits_beside(what: usize, other: impl Fn(&Rnic) + Send + Sync + 'static) {
    let both = beside(move |rnic| rnic.wait(what), other);
    explore_both(move |rings_for_all| {
        let rnic = both(rings_for_all);
        assert!(rnic.is_readable(), "a loop may come");
    });
}

#[test]
fn caller_that_sleeps_is_woken_by_a_frame() {
    waits_beside(FRAME, Rnic::deliver);
}

#[test]
fn caller_that_sleeps_looks_anew_when_a_verb_has_set_a_deadline() {
    waits_beside(DEADLINE, Rnic::set_deadline);
}

/// A thread that only polls has taken the frame.
#[test]
fn caller_that_sleeps_looks_anew_when_a_poll_has_set_a_deadline() {
    waits_beside(DEADLINE, |rnic| {
        rnic.deliver();
        rnic.lock().turn();
    });
}

/// The other caller has slept until the deadline that its own turns had set, and goes before that
/// comes.
#[test]
fn caller_that_sleeps_looks_anew_when_another_waits_no_longer() {
    waits_beside(DEADLINE, |rnic| {
        rnic.deliver();
        rnic.wait(FRAME);
    });
}

#[test]
fn caller_that_sleeps_looks_anew_when_the_sleep_of_another_has_failed() {
    waits_beside(DEADLINE, |rnic| {
        rnic.deliver();
        while turn_or_sleep(|| rnic.lock(), Bed::Word, |_, _| Err::<(), ()>(())).is_ok() {}
    });
}

#[test]
fn caller_that_sleeps_is_woken_after_another_could_not_arm_the_descriptor() {
    waits_beside(DEADLINE, |rnic| {
        let mut sharing = rnic.lock();
        sharing.shared_mut().cannot_arm = true;
        assert!(sharing.prepare_sleep(Bed::Descriptor).is_err());
        drop(sharing);
        rnic.set_deadline();
    });
}

#[test]
fn caller_that_sleeps_is_woken_by_the_end() {
    waits_beside(FRAME, Rnic::close);
}

/// The loop may have begun before or may begin after.
fn loop_beside(other: impl Fn(&Rnic) + Send + Sync + 'static) {
    let both = beside(|rnic| rnic.run_loop(DEADLINE), other);
    explore_both(move |rings_for_all| drop(both(rings_for_all)));
}

#[test]
fn event_loop_goes_on_until_nothing_is_left() {
    loop_beside(Rnic::deliver);
}

#[test]
fn event_loop_looks_anew_when_a_verb_has_set_a_deadline() {
    loop_beside(Rnic::set_deadline);
}

#[test]
fn event_loop_looks_anew_when_a_caller_waits_no_longer() {
    loop_beside(|rnic| {
        rnic.deliver();
        rnic.wait(FRAME);
    });
}

/// The descriptor is readable when the loop comes, though the caller has slept on it.
#[test]
fn event_loop_that_begins_after_a_caller_has_waited_is_woken() {
    let both = beside(|rnic| rnic.wait(FRAME), Rnic::deliver);
    explore_both(move |rings_for_all| both(rings_for_all).run_loop(DEADLINE));
}

/// The thread of an assisted engine turns it for a caller that waits for the deadline.
fn helped_beside(other: impl Fn(&Rnic) + Send + Sync + 'static) {
    let both = beside(Rnic::assist, move |rnic| {
        other(rnic);
        rnic.wait_aside(DEADLINE);
        rnic.close();
    });
    explore_both(move |rings_for_all| drop(both(rings_for_all)));
}

#[test]
fn engine_thread_that_sleeps_looks_anew_when_a_verb_has_set_a_deadline() {
    helped_beside(Rnic::set_deadline);
}

#[test]
fn engine_thread_that_sleeps_looks_anew_when_a_poll_has_set_a_deadline() {
    helped_beside(|rnic| {
        rnic.deliver();
        if let Ok(mut sharing) = rnic.sharing.try_lock() {
            sharing.turn();
        }
    });
}
