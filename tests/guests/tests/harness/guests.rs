//! Guests boot, run commands, and shut down.

use xwarp_guest_tests::siw::{Guest, GuestConfig, Image, Lab};

#[test]
fn guest_runs_commands_and_tells_how_they_ended() {
    let Some(image) = Image::find() else { return };
    let lab = Lab::new();
    let guest = Guest::boot(&lab, &image, 1);
    let said = guest.run("echo one; echo two >&2").succeeded();
    assert_eq!(said.output, "one\ntwo");
    assert_eq!(guest.run("exit 3").status(), 3);
    assert_eq!(guest.run("kill -9 $$").status(), 128 + 9);
    let devices = guest.run("ibv_devinfo").succeeded();
    assert!(devices.output.contains("siw0"), "{devices}");
}

#[test]
fn guest_cannot_write_to_this_machine_but_to_its_share() {
    let Some(image) = Image::find() else { return };
    let lab = Lab::new();
    let guest = Guest::boot_as(
        &lab,
        &image,
        1,
        GuestConfig {
            siw: false,
            ..GuestConfig::default()
        },
    );
    let file = lab.work.file("victim");
    std::fs::write(&file, "before").expect("our own directory");
    assert_ne!(
        guest
            .run(&format!("echo after >{}", file.display()))
            .status(),
        0
    );
    assert_eq!(
        std::fs::read_to_string(&file).expect("our own file"),
        "before"
    );
    let _ = guest.run("echo after >/mnt/new").succeeded();
    let new = std::fs::read_to_string(guest.share().join("new"));
    assert_eq!(new.expect("the guest's file"), "after\n");
}
