//! Kinds of interfaces that the guest's kernel has by modules, and many a host's does not: VLANs
//! and bonds.

use xwarp_guest_tests::nic::{Card, Guest, Image};

#[test]
fn rnics_on_vlans_and_bonds_pass_their_tests() {
    xwarp_test_kit::needs_root!();
    let Some(image) = Image::find() else { return };
    let guest = Guest::boot(&image, Card::Virtio, 1);
    for tests in ["vlan::", "bond::"] {
        let ended = guest.run_netns_tests(tests);
        let all = ended.succeeds() && !ended.stderr.contains("skipped");
        assert!(all && !ended.stdout.contains(" 0 passed"), "{ended}");
    }
}
