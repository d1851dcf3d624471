//! `[network.cee]`: what it means, and what it refuses.

use std::path::Path;

use proptest::prelude::*;
use sluicegate_fabric::cee::{
    Buffer, CeeConfig, EtsClass, EtsConfig, Pause, PfcConfig, QcnConfig, QcnParams, Sampling,
};
use sluicegate_scenario::file::{self, Options};

const NETWORK: &str = "[traffic.bulk]\nkind = 'bulk'\n\
    [network]\ntopology = 'dumbbell'\nrate = '10Gbit'\n[network.cee]\n";

fn config(text: &str) -> CeeConfig {
    let text = format!("{NETWORK}{text}");
    let parsed = file::parse(Path::new("t.toml"), &text, &Options::default());
    let mut experiment = parsed.unwrap_or_else(|problems| panic!("{problems}"));
    experiment.variants.remove(0).cee.unwrap()
}

#[track_caller]
fn refused(text: &str, expected: &[&str]) {
    let text = format!("{NETWORK}{text}");
    match file::parse(Path::new("t.toml"), &text, &Options::default()) {
        Ok(experiment) => panic!("accepted: {:?}", experiment.variants[0].cee),
        Err(problems) => {
            let told = problems.to_string();
            for part in expected {
                assert!(told.contains(part), "{part:?} is not in {told}");
            }
        }
    }
}

#[test]
fn defaults_are_those_of_the_thesis() {
    assert_eq!(config(""), CeeConfig::default());
    let all = config("[network.cee.pfc]\n[network.cee.qcn]\n");
    assert_eq!(all.pfc, Some(PfcConfig::default()));
    let qcn = QcnConfig {
        priorities: 0xff,
        notification_priority: 7,
        rate_limiters: true,
        params: QcnParams::thesis(66_000),
    };
    assert_eq!(all.qcn, Some(qcn));
    assert_eq!(all.ets, EtsConfig::default());
}

#[test]
fn a_preset_is_a_beginning() {
    let qcn = |text: &str| config(&format!("[network.cee.qcn]\n{text}")).qcn.unwrap();
    let standard = qcn("preset = 'standard'\n");
    assert_eq!(standard.params, QcnParams::standard());
    assert_eq!(standard.notification_priority, 6);
    assert_eq!(
        qcn("preset = 'thesis'\nset_point = '20KB'\n").params,
        QcnParams::thesis(20_000)
    );
    let own = qcn(
        "preset = 'standard'\npriorities = [3, 4]\nset_point = '30KB'\nweight = 1\ninterval = '100KB'\ngain = 0.01\n\
         min_rate = '10Mbit'\nmin_decrease = 0.25\nactive_increase = '6Mbit'\nhyper_increase = '60Mbit'\n\
         byte_limit = '120KB'\ntimer = '10ms'\nfast_recovery = 3\nextra_fast_recovery = false\n\
         sampling = 'linear'\nnotification_priority = 5\n",
    );
    assert_eq!(own.notification_priority, 5);
    let params = QcnParams {
        set_point_bytes: 30_000,
        weight: 1.0,
        interval_bytes: 100_000,
        sampling: Sampling::Linear,
        gain: 0.01,
        min_decrease: 0.25,
        min_rate_bps: 10_000_000,
        active_increase_bps: 6_000_000,
        hyper_increase_bps: 60_000_000,
        byte_limit: 120_000,
        timer_ps: 10_000_000_000,
        fast_recovery: 3,
        extra_fast_recovery: false,
    };
    assert_eq!(own.params, params);
    assert_eq!(own.priorities, 0b1_1000);
}

#[test]
fn switches_adapters_and_pauses_are_as_said() {
    let said = config(
        "switch = 'shared'\nmemory = '8MB'\nalpha = 0.5\nforwarding = 'store-and-forward'\nswitch_delay = '200ns'\n\
         adapter_delay = '1us'\nadapter_buffer = '1MB'\nresequence_buffer = '2MB'\n\
         [network.cee.pfc]\npriorities = 3\nxoff = '60KB'\nxon = '50KB'\npause = 'wire'\nresponse = '1us'\nheadroom = '20KB'\n",
    );
    let expected = CeeConfig {
        buffer: Buffer::Shared {
            bytes: 8_000_000,
            alpha: 0.5,
        },
        cut_through: false,
        switch_delay_ps: 200_000,
        adapter_delay_ps: 1_000_000,
        adapter_bytes: 1_000_000,
        resequence_bytes: 2_000_000,
        pfc: Some(PfcConfig {
            priorities: 0b1000,
            xoff_bytes: 60_000,
            xon_bytes: 50_000,
            pause: Pause::Wire {
                response_ps: 1_000_000,
                headroom_bytes: Some(20_000),
            },
        }),
        qcn: None,
        ets: EtsConfig::default(),
    };
    assert_eq!(said, expected);
    assert_eq!(
        config("port_buffer = '250KB'\n").buffer,
        Buffer::Input { bytes: 250_000 }
    );
    let unlimited = config("adapter_buffer = 'unlimited'\n");
    assert_eq!(unlimited.adapter_bytes, CeeConfig::UNLIMITED);
}

#[test]
fn classes_have_shares_or_are_strict() {
    let said = config(
        "[network.cee.ets]\nclasses = [{ priorities = [0, 1], share = 60 }, { priorities = 'rest', share = 40 }, { priorities = 7 }]\n",
    );
    let class = |priorities, share| EtsClass { priorities, share };
    let expected = [
        class(0b0000_0011, Some(60)),
        class(0b0111_1100, Some(40)),
        class(0b1000_0000, None),
    ];
    assert_eq!(said.ets.classes, expected);
    let ets = |classes: &str, expected: &[&str]| {
        refused(
            &format!("[network.cee.ets]\nclasses = [{classes}]\n"),
            expected,
        );
    };
    let line = "t.toml:8:";
    ets(
        "{ priorities = 'rest', share = 90 }",
        &[line, "network.cee.ets.classes", "90, not 100"],
    );
    ets(
        "{ priorities = [0, 1], share = 100 }",
        &[line, "priority 2 is in no class", "\"rest\""],
    );
    ets(
        "{ priorities = [0, 1], share = 50 }, { priorities = 1, share = 50 }",
        &[
            line,
            "classes[1].priorities",
            "priority 1 is in a class already",
        ],
    );
    ets("{ priorities = 8 }", &["classes[0].priorities", "8"]);
    ets(
        "{ priorities = [], share = 100 }, { priorities = 'rest' }",
        &["needs a priority"],
    );
    ets("{ priorities = 'rest', share = 0 }", &["classes[0].share"]);
    ets("{ share = 100 }", &["`priorities` is missing"]);
    ets(
        "{ priorities = 'rest' }, { priorities = 'rest' }",
        &["the rest is in a class already"],
    );
    refused("[network.cee.ets]\n", &["t.toml:7", "`classes` is missing"]);
}

#[test]
fn thresholds_must_fit_each_other_and_their_buffer() {
    let pfc =
        |text: &str, expected: &[&str]| refused(&format!("[network.cee.pfc]\n{text}"), expected);
    pfc(
        "xon = '97KB'\n",
        &[
            "t.toml:8:",
            "network.cee.pfc.xon",
            "XON at 97KB must lie below XOFF at 97KB (the default)",
        ],
    );
    pfc(
        "xoff = '70KB'\n",
        &[
            "t.toml:8:",
            "network.cee.pfc.xoff",
            "XON at 80KB (the default) must lie below XOFF at 70KB;",
        ],
    );
    pfc(
        "xoff = '99KB'\n",
        &[
            "network.cee.pfc.xoff",
            "`port_buffer` is 100KB (the default)",
            "97111 B or less",
            "`port_buffer` to 101889 B",
        ],
    );
    pfc("priorities = [1, 9]\n", &["network.cee.pfc.priorities[1]"]);
    pfc("priorities = [1, 1]\n", &["priority 1 is here twice"]);
    pfc("priorities = []\n", &["must not be empty"]);
    pfc("priorities = 'some'\n", &["network.cee.pfc.priorities"]);
    pfc("headroom = '9KB'\n", &["belongs to `pause = \"wire\"`"]);
    pfc("xof = '9KB'\n", &["unknown key", "xoff"]);
}

#[test]
fn an_ideal_pause_leaves_what_is_on_the_wire() {
    let ideal = |text: &str| format!("{text}[network.cee.pfc]\n");
    let link = |delay: &str| format!("[sim]\nlink_delay = '{delay}'\n");
    // Table 2.1: 1.1 us at 10 Gb/s are 1375 B, then a frame of 1514 B.
    config(&(ideal("") + &link("1us")));
    config(&(ideal("") + "xoff = '97111B'\n" + &link("1us")));
    refused(
        &(ideal("") + "xoff = '97112B'\n" + &link("1us")),
        &["t.toml:8:8: network.cee.pfc.xoff: ", "97111 B or less"],
    );
    // 3.1 us are 3875 B.
    refused(
        &(ideal("") + &link("3us")),
        &[
            "t.toml:7:1: network.cee.pfc: XOFF at 97KB (the default) and a headroom of 5389 B, which right-r2 needs",
            "`port_buffer` is 100KB (the default)",
            "lower `xoff` to 94611 B or less, or raise `port_buffer` to 102389 B",
        ],
    );
    config(&(ideal("port_buffer = '102389B'\n") + &link("3us")));
    // 100 Gb/s across a cable of 5 us; what comes by another goes at its own rate.
    refused(
        &(ideal("") + "[network.link.left-right]\nrate = '100Gbit'\ndelay = '5us'\n"),
        &[
            "headroom of 65264 B, which left-right needs",
            "34736 B or less, and `xon` below it",
        ],
    );
    // A switch that hears of a frame by its end has another on the wire by then.
    let stores = "forwarding = 'store-and-forward'\n";
    refused(&(ideal(stores) + &link("0us")), &["headroom of 3153 B"]);
    refused(
        &(ideal("port_buffer = '2KB'\n") + &link("1us")),
        &["raise `port_buffer` to 99889 B"],
    );
}

#[test]
fn headroom_on_the_wire_is_what_links_need() {
    // 2 x 1 us + 100 ns + 614 ns at 10 Gb/s are 3 393 B, then two frames of 1514 B and a pause
    // frame.
    let needed = 3_393 + 2 * 1_514 + 64;
    let wire = |text: &str| format!("{text}[network.cee.pfc]\npause = 'wire'\n");
    let longer = "[network.link.left-right]\ndelay = '2us'\n";
    let link = |delay: &str| format!("{delay}[sim]\nlink_delay = '1us'\n");
    let most = format!("{} B or less", 100_000 - needed);
    refused(
        &(wire("") + &link("")),
        &["network.cee.pfc", "XOFF at 97KB", &most],
    );
    let fits = format!("xoff = '{}B'\n", 100_000 - needed);
    config(&(wire("") + &fits + &link("")));
    refused(
        &(wire("") + "headroom = '6KB'\n" + &link(longer)),
        &[
            "t.toml:9:",
            "network.cee.pfc.headroom",
            &format!("give {} B", needed + 2_500),
            "left-right",
        ],
    );
    config(&(wire("port_buffer = '200KB'\n") + &link("")));
    let shared =
        |memory: &str| wire(&format!("switch = 'shared'\nmemory = '{memory}'\n")) + &link("");
    // Three ports of eight priorities at each switch.
    refused(
        &shared("150KB"),
        &["t.toml:8:", "network.cee.memory", "155640 B at "],
    );
    config(&shared("1MB"));
}

#[test]
fn notifications_can_come_and_slow_somebody() {
    let qcn = |text: &str| format!("[network.cee.qcn]\n{text}\n");
    let slow = "[network.link.left-right]\nrate = '1Gbit'\n";
    config(&(qcn("min_rate = '1Gbit'") + slow));
    refused(
        &(qcn("min_rate = '2Gbit'") + slow),
        &[
            "t.toml:8:",
            "network.cee.qcn.min_rate: no notification would lower a rate to that of left-right, 1Gbit;",
        ],
    );
    // Each switch has three inputs of 100 KB.
    config(&qcn("set_point = '299KB'"));
    refused(
        &qcn("set_point = '300KB'"),
        &["t.toml:8:", "network.cee.qcn.set_point", "more than 300KB;"],
    );
    let shared = "switch = 'shared'\nmemory = '500KB'\n";
    config(&(shared.to_owned() + &qcn("set_point = '300KB'")));
    refused(
        &(shared.to_owned() + &qcn("set_point = '500KB'")),
        &["no notification would come"],
    );
}

#[test]
fn nothing_is_lossless_where_frames_are_late_or_doubled() {
    let impaired = |keys: &str| format!("[network.link.left-right]\n{keys}\n");
    let pfc = |text: &str| format!("[network.cee.pfc]\n{text}");
    config(&impaired("reorder_rate = 0.1"));
    config(&pfc(&impaired("bit_error_rate = 1e-9")));
    for key in ["reorder_rate", "duplicate_rate"] {
        let expected = format!("t.toml:7:1: network.cee.pfc: with `{key}` nothing is lossless");
        refused(&pfc(&impaired(&format!("{key} = 0.1"))), &[&expected]);
        let event = format!("[[event]]\nat = '1ms'\nimpair = {{ {key} = 0.1 }}\n");
        refused(&pfc(&event), &[&expected]);
    }
}

#[test]
fn what_belongs_to_the_other_ethernet_is_refused() {
    let offload = |segments: u32| format!("[tenant.default]\noffload_segments = {segments}\n");
    config(&offload(1));
    refused(
        &offload(2),
        &[
            "t.toml:8:",
            "tenant.default.offload_segments",
            "frames of the MTU",
        ],
    );
    let plain = "[network]\ntopology = 'dumbbell'\n[traffic.bulk]\nkind = 'bulk'\npriority = 3\n";
    let told = file::parse(Path::new("t.toml"), plain, &Options::default()).unwrap_err();
    let expected = "t.toml:5:1: traffic.bulk.priority: needs a [network.cee]: plain Ethernet has no priorities";
    assert!(told.to_string().contains(expected), "{told}");
}

#[test]
fn what_says_nothing_here_is_refused() {
    refused(
        "memory = '1MB'\n",
        &["t.toml:7:", "belongs to `switch = \"shared\"`"],
    );
    refused(
        "switch = 'shared'\nport_buffer = '1MB'\n",
        &["belongs to `switch = \"input\"`"],
    );
    refused("switch = 'shared'\n", &["`memory` is missing"]);
    refused(
        "adapter_buffer = '1KB'\n",
        &["network.cee.adapter_buffer", "holds no frame of 1514 B"],
    );
    refused(
        "adapter_buffer = '1B'\n",
        &["between 102B and 4GB, not 1B; or be \"unlimited\""],
    );
    refused(
        "adapter_buffer = 'much'\n",
        &["network.cee.adapter_buffer", "much", "or \"unlimited\""],
    );
    refused(
        "[network.cee.qcn]\ngain = 0.0\n",
        &["no notification would lower a rate"],
    );
    refused(
        "[network.cee.qcn]\ntimer = '0ms'\n",
        &["network.cee.qcn.timer"],
    );
    refused("[network.cee.qcn]\npreset = 'theses'\n", &["thesis"]);
    let beside = |keys: &str| {
        let text = NETWORK.replace("[network.cee]", &format!("{keys}\n[network.cee]"));
        let problems = file::parse(Path::new("t.toml"), &text, &Options::default());
        problems.unwrap_err().to_string()
    };
    let told = beside("shared_buffer = '1MB'");
    assert!(told.contains("t.toml:6:1: network.shared_buffer"), "{told}");
    let told = beside("queue = '1MB'");
    let expected = "t.toml:6:1: network.queue: means nothing with [network.cee], which says what a switch keeps: \
        `port_buffer` of each input, or `memory` with `switch = \"shared\"`; leave it out";
    assert!(told.contains(expected), "{told}");
    let told = beside("[network.link.left-right]\nqueue = '1MB'");
    let expected = "t.toml:7:1: network.link.left-right.queue: means nothing with [network.cee]";
    assert!(told.contains(expected), "{told}");
    let text = "[traffic.b]\nkind = 'bulk'\n[network]\ntopology = 'graph'\n\
        links = [{ a = 'h1', b = 's' },\n{ a = 'h2', b = 's', queue = '1MB' }]\n[network.cee]\n";
    let told = file::parse(Path::new("t.toml"), text, &Options::default()).unwrap_err();
    let expected = "t.toml:6:22: network.links[1].queue: means nothing with";
    assert!(told.to_string().contains(expected), "{told}");
}

proptest! {
    #[test]
    fn whatever_is_written_is_read_or_refused(
        key in prop::sample::select(vec![
            "switch", "port_buffer", "memory", "alpha", "forwarding", "switch_delay", "adapter_buffer", "pfc",
            "pfc.priorities", "pfc.xoff", "pfc.xon", "pfc.pause", "pfc.response", "pfc.headroom", "qcn", "qcn.preset",
            "qcn.priorities", "qcn.set_point", "qcn.weight", "qcn.gain", "qcn.timer", "ets", "ets.classes",
        ]),
        value in prop_oneof![
            any::<i64>().prop_map(|n| n.to_string()),
            "[0-9]{1,12}(KB|GB|us|s|Gbit)".prop_map(|text| format!("\"{text}\"")),
            prop::sample::select(vec!["\"shared\"", "\"wire\"", "\"rest\"", "\"all\"", "nan", "-0.0", "[]", "[{}]",
                "[{ priorities = [], share = 3 }]", "[{ priorities = 'rest' }]", "[0, 0]", "false"]).prop_map(str::to_owned),
        ],
    ) {
        let text = format!("{NETWORK}{key} = {value}\n");
        let _ = file::parse(Path::new("t.toml"), &text, &Options::default());
    }
}
