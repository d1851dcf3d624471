//! Every shipped scenario resolves, in its full and its short form.

use std::path::{Path, PathBuf};

use sluicegate_scenario::file::{self, Options};

fn shipped() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let entries = std::fs::read_dir(directory).expect("the scenarios directory");
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    files.sort();
    files
}

#[test]
fn every_shipped_scenario_resolves() {
    let files = shipped();
    assert!(!files.is_empty());
    for path in files {
        for short in [false, true] {
            let options = Options { short, seed: None };
            let experiment = file::load(&path, &options).unwrap_or_else(|p| panic!("{p}"));
            assert!(
                !experiment.expectations.is_empty(),
                "{} expects nothing",
                path.display()
            );
            for variant in &experiment.variants {
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
            let experiment = file::load(&path, &Options { short, seed }).unwrap();
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
