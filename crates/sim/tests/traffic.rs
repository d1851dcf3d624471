//! What applications send, and what is measured of it.

mod support;

use support::run;

/// A pair over one link of 100 Mbit/s with constant delays, for a second.
const PAIR: &str = "warmup = '0s'\nduration = '1s'\n[network]\ntopology = 'dumbbell'\npairs = 1\n\
    rate = '100Mbit'\n[sim]\njitter = '0us'\n";

#[test]
fn what_phases_offer_beyond_the_link_is_sent_later() {
    let results = run(&format!(
        "{PAIR}[traffic.b]\nkind = 'bulk'\nclass = 'whole'\nstop = '400ms'\n\
        phases = [{{ until = '100ms', rate = '50Mbit' }}, {{ until = '200ms', rate = '400Mbit' }}, {{ rate = '50Mbit' }}]\n\
        [interval.calm]\nstart = '20ms'\nstop = '100ms'\n[interval.burst]\nstart = '120ms'\nstop = '400ms'\n"
    ));
    let bits = 50e6 * 0.1 + 400e6 * 0.1 + 50e6 * 0.2;
    let result = &results[0];
    assert_eq!(result.flows[0].goodput_bps, bits, "nothing is forgotten");
    let within = |value: f64, low: f64, high: f64| assert!((low..high).contains(&value), "{value}");
    within(result.intervals["calm"].sum, 48e6, 52e6);
    within(result.intervals["burst"].sum, 93e6, 96e6);
    // A payload of 1448 bytes takes 1514 bytes of the link.
    let drained_s = 0.1 + (bits - 5e6) / (100e6 * 1448.0 / 1514.0);
    let whole = &result.fct_us["whole"];
    assert_eq!(whole.count, 1);
    within(whole.p50 / 1e6, drained_s, drained_s + 0.005);
}
