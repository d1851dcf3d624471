//! Every shipped scenario resolves, in its full and its short form.

use std::path::{Path, PathBuf};

use sluicegate_policy::Policy;
use sluicegate_scenario::{
    figures::Quantity,
    file::{self, Options},
};

/// `scenarios/*.toml` and those one directory below.
fn shipped() -> Vec<PathBuf> {
    let mut files = below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios"));
    files.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    files.sort();
    files
}

fn below(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the scenarios directory");
    let paths = entries.map(|entry| entry.unwrap().path());
    let deeper = paths.map(|path| match path.is_dir() {
        true => below(&path),
        false => vec![path],
    });
    deeper.flatten().collect()
}

#[test]
fn every_shipped_scenario_resolves() {
    let files = shipped();
    assert!(!files.is_empty());
    for path in files {
        for short in [false, true] {
            let options = Options {
                short,
                ..Options::default()
            };
            let experiment = file::load(&path, &options).unwrap_or_else(|p| panic!("{p}"));
            assert!(
                !experiment.expectations.is_empty(),
                "{} expects nothing",
                path.display()
            );
            for variant in &experiment.variants {
                if let Some(enforcement) = &variant.enforcement {
                    let read = Policy::parse("policy.toml", &enforcement.policy_text);
                    let read = read.unwrap_or_else(|problems| panic!("{problems}"));
                    assert_eq!(read, enforcement.policy, "{}", path.display());
                }
                let bottlenecks = variant.links.iter().filter(|l| l.bottleneck).count();
                assert!(bottlenecks > 0, "{}: {}", path.display(), variant.name);
            }
        }
    }
}

#[test]
fn what_was_run_reads_back_as_the_same_experiment() {
    for path in shipped() {
        for short in [false, true] {
            let seed = Some(7);
            let experiment = file::load(
                &path,
                &Options {
                    short,
                    seed,
                    ..Options::default()
                },
            )
            .unwrap();
            let text = &experiment.as_run;
            let elsewhere = Path::new("elsewhere/scenario.toml");
            let mut again = file::parse(elsewhere, text, &Options::default())
                .unwrap_or_else(|problems| panic!("{problems}"));
            again.file.clone_from(&experiment.file);
            again.as_run.clone_from(text);
            assert!(again == experiment, "{} differs:\n{text}", path.display());
        }
    }
}

/// Every tenant in the lab that does not cheat runs Linux's stack, which follows the standards:
/// policing one is a fault. What is below `scenarios` is for one world alone.
#[test]
fn where_hosts_enforce_nobody_may_be_policed() {
    let lab = shipped().into_iter().filter(|path| {
        let directory = path.parent().and_then(Path::file_name);
        directory.is_some_and(|name| name == "scenarios")
    });
    for path in lab {
        let experiment = file::load(&path, &Options::default()).unwrap_or_else(|p| panic!("{p}"));
        let figures: Vec<_> = experiment
            .expectations
            .iter()
            .flat_map(|expectation| expectation.figures())
            .collect();
        let policed = Quantity::Enforcement("policed".to_owned());
        for variant in experiment
            .variants
            .iter()
            .filter(|v| v.enforcement.is_some())
        {
            assert!(
                figures
                    .iter()
                    .any(|f| f.variant == variant.name && f.quantity == policed),
                "{}: nothing is expected of {}.enforcement.policed",
                path.display(),
                variant.name
            );
        }
    }
}
