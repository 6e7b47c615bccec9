//! Binding of a queue: zero copy, and what the kernel may refuse.

use super::*;

const COPY: u16 = libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP;
const ZERO_COPY: u16 = libc::XDP_ZEROCOPY | libc::XDP_USE_NEED_WAKEUP;

/// Opens a queue whose tries to bind end with these errors: the flags of the tries, and the error.
fn bound(
    zero_copy: ZeroCopy,
    frames: Buffers,
    errors: &[i32],
) -> (Vec<u16>, Option<OpenQueueError>) {
    let target = Target {
        zero_copy,
        frames,
        ..target()
    };
    let mut binds = None;
    let prepare = |kernel: &Kernel| {
        kernel.refuse_binding(errors.iter().copied());
        binds = Some(kernel.clone());
    };
    let error = Bed::open(&target, &wanted(), prepare).err();
    (binds.unwrap().binds(), error)
}

#[test]
fn zero_copy_is_tried_demanded_or_not_asked_for() {
    let one = |zero_copy, errors: &[i32]| bound(zero_copy, Buffers::One, errors);
    let ok = |(tries, error): (Vec<u16>, Option<OpenQueueError>)| {
        assert!(error.is_none(), "{error:?}");
        tries
    };
    assert_eq!(ok(one(ZeroCopy::Never, &[])), [COPY]);
    assert_eq!(ok(one(ZeroCopy::Try, &[])), [ZERO_COPY]);
    assert_eq!(ok(one(ZeroCopy::Demand, &[])), [ZERO_COPY]);
    for none in [libc::EOPNOTSUPP, libc::EINVAL] {
        assert_eq!(ok(one(ZeroCopy::Try, &[none])), [ZERO_COPY, COPY]);
        let (tries, error) = one(ZeroCopy::Demand, &[none]);
        assert_eq!(tries, [ZERO_COPY]);
        assert!(matches!(error, Some(OpenQueueError::NoZeroCopy { .. })));
    }
    let several = libc::XDP_USE_SG;
    let many = |zero_copy| ok(bound(zero_copy, Buffers::Many, &[]));
    assert_eq!(many(ZeroCopy::Never), [COPY | several]);
    assert_eq!(many(ZeroCopy::Try), [ZERO_COPY | several]);
}

#[test]
fn refused_queue_says_why() {
    for zero_copy in [ZeroCopy::Never, ZeroCopy::Try, ZeroCopy::Demand] {
        for errno in [libc::EPERM, libc::EACCES] {
            let (tries, error) = bound(zero_copy, Buffers::One, &[errno]);
            assert_eq!(tries.len(), 1);
            assert!(matches!(error, Some(OpenQueueError::NotPermitted { .. })));
        }
        let (_, error) = bound(zero_copy, Buffers::One, &[libc::ENETDOWN]);
        assert!(matches!(
            error,
            Some(OpenQueueError::Refused { queue: 1, .. })
        ));
    }
}

/// The kernel frees a queue a moment after its last user has closed it.
#[test]
#[cfg_attr(miri, ignore = "reads the real clock")]
fn busy_queue_is_tried_again_for_a_while() {
    let busy = libc::EBUSY;
    let (tries, error) = bound(ZeroCopy::Try, Buffers::One, &[busy, busy]);
    assert_eq!(tries, [ZERO_COPY; 3]);
    assert!(error.is_none());
    let always = [busy; 2000];
    let (tries, error) = bound(ZeroCopy::Never, Buffers::One, &always);
    assert!(tries.len() < always.len() && tries.len() > 2);
    assert!(matches!(error, Some(OpenQueueError::Busy { queue: 1, .. })));
}
