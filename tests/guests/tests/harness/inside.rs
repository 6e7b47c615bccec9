//! xwarp inside guests, so that it and siw can be compared on the same kernel and network.

use xwarp_guest_tests::siw::{Guest, GuestConfig, Image, Lab};
use xwarp_system_tests::Hosts;

#[test]
fn xwarp_runs_in_guests_over_generic_xdp() {
    let Some(image) = Image::find() else { return };
    let lab = Lab::new();
    let config = GuestConfig {
        siw: false,
        ..GuestConfig::default()
    };
    let [client, server] = [1, 2].map(|number| Guest::boot_as(&lab, &image, number, config));
    let command = Hosts::command_file();
    let perf = format!(
        "{} perf write-bw --verify --mode generic",
        command.display()
    );
    let mut serving = server.start(&format!("{perf} --dev eth0"));
    serving.line("waiting for a client at ");
    let measured = client
        .run(&format!("{perf} --iterations 50 {}", server.address()))
        .succeeded();
    assert!(measured.output.contains("XDP generic"), "{measured}");
    assert!(measured.output.contains("  verified"), "{measured}");
    let _ = serving.finish().succeeded();
}
