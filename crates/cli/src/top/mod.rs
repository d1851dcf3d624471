//! `sluicegate top`: flows, tenants and counters as they change.

mod app;
mod draw;
mod model;

use std::{
    io::{self, IsTerminal},
    num::NonZeroU32,
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use serde_json::json;
use sluicegate_agent::meter::Snapshot;

use self::{
    app::App,
    model::{Model, Tenant},
};
use crate::{
    columns::{Align, bytes, table},
    flows::{Choice, Place, lines},
    flowtable::{Column, Order, Row, rate},
    output::{self, Failure},
    source::Source,
};

/// How long a key may wait while nothing is news.
const TICK: Duration = Duration::from_millis(50);

/// Watch flows, tenants and counters as they change.
///
/// Enforcement in the kernel, and in the userspace switch. Reads the kernel's pinned state, so it
/// also works while no agent runs and enforcement goes on. Where a rule
/// only observes, the window that a tenant would be held to stands beside what its peer offers,
/// with a `~`. Press ? for the keys.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sluicegate top
  sluicegate top --filter why=observe --sort allowed
  sluicegate top --batch 10 --interval 2 --limit 20 > watched.txt
  sluicegate top --once --json | jq .totals")]
pub struct Args {
    #[command(flatten)]
    choice: Choice,

    /// Show at most so many flows, without a terminal
    #[arg(long, value_name = "N")]
    limit: Option<usize>,

    /// Seconds between two looks
    #[arg(long, short = 'd', value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,

    /// Print tables instead of drawing, so many times
    #[arg(long, short, value_name = "N")]
    batch: Option<NonZeroU32>,

    /// Print one table; the same as --batch 1
    #[arg(long, conflicts_with = "batch")]
    once: bool,

    /// Print a line of JSON instead of each table: `flows`, `tenants`, `totals`, `counters`
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: Place,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("seconds from 0.1 to 3600".to_owned()),
    }
}

/// Watches until told to stop, or so many times.
pub fn run(args: &Args) -> Result<(), Failure> {
    let times = args.batch.map(NonZeroU32::get).or(args.once.then_some(1));
    if times.is_none() && (args.json || !io::stdout().is_terminal()) {
        let text =
            "there is no terminal to draw on: say how often to print, with --once or --batch N";
        return Err(Failure::BadInput(text.to_owned()));
    }
    let source = Source::find(&args.place)?;
    let order = args.choice.order(Column::Sending);
    match times {
        Some(times) => batch(args, order, &source, times),
        None => {
            let app = App::new(args.choice.filter(), order);
            Ok(watch(app, args.interval, source)?)
        }
    }
}

/// Rates need an earlier look, so there is one more than is printed.
fn batch(args: &Args, order: Order, source: &Source, times: u32) -> Result<(), Failure> {
    let mut model = Model::default();
    model.update(source.look()?);
    let filter = args.choice.filter();
    for time in 0..times {
        thread::sleep(args.interval);
        model.update(source.look()?);
        let mut shown: Vec<usize> = (0..model.rows.len())
            .filter(|index| filter.holds(&model.rows[*index]))
            .collect();
        order.sort(&model.rows, &mut shown);
        shown.truncate(args.limit.unwrap_or(usize::MAX));
        let text = if args.json {
            json_line(&model, &shown)?
        } else {
            let gap = if time > 0 { "\n" } else { "" };
            format!("{gap}{}", tables(&model, &shown))
        };
        output::print(&text)?;
    }
    Ok(())
}

fn json_line(model: &Model, shown: &[usize]) -> Result<String> {
    let flows: Result<Vec<serde_json::Value>> = shown
        .iter()
        .map(|index| {
            let Row { flow, rates } = &model.rows[*index];
            let mut document = serde_json::to_value(flow)?;
            document["rates"] = serde_json::to_value(rates)?;
            Ok(document)
        })
        .collect();
    let document = json!({
        "flows": flows?,
        "tenants": model.tenants,
        "totals": model.totals,
        "counters": model.counters,
        "table_slots": model.slots,
    });
    Ok(format!("{document}\n"))
}

fn tables(model: &Model, shown: &[usize]) -> String {
    let rows: Vec<Row> = shown
        .iter()
        .map(|index| model.rows[*index].clone())
        .collect();
    let columns = tenant_columns();
    let head: Vec<(&str, Align)> = columns
        .iter()
        .map(|(title, align, _)| (*title, *align))
        .collect();
    let tenants: Vec<Vec<String>> = model
        .tenants
        .iter()
        .map(|tenant| columns.iter().map(|(_, _, text)| text(tenant)).collect())
        .collect();
    let counters: Vec<String> = model
        .counters
        .iter()
        .filter(|counter| counter.value > 0)
        .map(|counter| {
            let per_second = counter.per_second.map_or_else(|| "-".to_owned(), rate);
            format!("{} {} ({per_second}/s)", counter.name, counter.value)
        })
        .collect();
    format!(
        "{}{} of {} flows, table {} of {}\n\n{}\n{}\n",
        lines(&Column::WATCHED, &rows),
        rows.len(),
        model.rows.len(),
        model.rows.len(),
        model.slots,
        table(&head, &tenants),
        counters.join(", "),
    )
}

/// A column of tenants: its title, and what it says of one.
type TenantColumn = (&'static str, Align, fn(&Tenant) -> String);

/// The columns of tenants.
fn tenant_columns() -> [TenantColumn; 14] {
    [
        ("tenant", Align::Left, |tenant| tenant.tenant.clone()),
        ("flows", Align::Right, |tenant| {
            tenant.totals.flows.to_string()
        }),
        ("active", Align::Right, |tenant| {
            tenant.totals.active.to_string()
        }),
        ("quota", Align::Right, |tenant| match tenant.quota {
            0 => "-".to_owned(),
            quota => quota.to_string(),
        }),
        ("enforced", Align::Right, |tenant| {
            tenant.totals.enforced.to_string()
        }),
        ("observed", Align::Right, |tenant| {
            tenant.totals.observed.to_string()
        }),
        ("watched", Align::Right, |tenant| {
            tenant.totals.watched.to_string()
        }),
        ("send b/s", Align::Right, |tenant| {
            rates(tenant, |rates| rate(rates.acked_bps))
        }),
        ("recv b/s", Align::Right, |tenant| {
            rates(tenant, |rates| rate(rates.received_bps))
        }),
        ("mark %", Align::Right, |tenant| {
            let share = tenant.totals.rates.and_then(|rates| rates.marked_share());
            share.map_or_else(|| "-".to_owned(), |share| format!("{:.1}", 100.0 * share))
        }),
        ("srtt us", Align::Right, |tenant| {
            let srtt_us = tenant.totals.srtt_us;
            srtt_us.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}"))
        }),
        ("limited", Align::Right, |tenant| {
            tenant.totals.limited.to_string()
        }),
        ("allowed", Align::Right, |tenant| {
            let would = match (tenant.totals.observed, tenant.totals.enforced) {
                (1.., 0) => "~",
                _ => "",
            };
            format!("{would}{}", bytes(tenant.totals.allowed_window_bytes))
        }),
        ("peer's", Align::Right, |tenant| {
            bytes(tenant.totals.advertised_window_bytes)
        }),
    ]
}

fn rates(tenant: &Tenant, text: impl Fn(&crate::flowtable::Rates) -> String) -> String {
    tenant
        .totals
        .rates
        .as_ref()
        .map_or_else(|| "-".to_owned(), text)
}

/// The result of a look; errors as text for people.
type Look = Result<Snapshot, String>;

/// Looks go on in a thread of their own, so that keys do not wait for ten thousand flows to be
/// read.
fn watch(app: App, interval: Duration, source: Source) -> Result<()> {
    let (sender, looks) = sync_channel::<Look>(1);
    thread::Builder::new()
        .name("look".to_owned())
        .spawn(move || {
            loop {
                let seen = source.look().map_err(|error| format!("{error:#}"));
                if sender.send(seen).is_err() {
                    return;
                }
                thread::sleep(interval);
            }
        })
        .context("starting a thread")?;
    // Restores the terminal also when something panics.
    let mut terminal = ratatui::try_init().context("drawing on this terminal")?;
    let outcome = draw_until_told(app, &mut terminal, &looks);
    ratatui::restore();
    outcome
}

fn draw_until_told(
    mut app: App,
    terminal: &mut ratatui::DefaultTerminal,
    looks: &Receiver<Look>,
) -> Result<()> {
    loop {
        terminal
            .draw(|frame| draw::draw(frame, &mut app))
            .context("drawing")?;
        // Waits for whichever comes first, news or a key.
        let mut changed = false;
        while !changed {
            while event::poll(Duration::ZERO).context("reading keys")? {
                changed = true;
                if let Event::Key(key) = event::read().context("reading keys")? {
                    if key.kind == KeyEventKind::Press && app.key(key) {
                        return Ok(());
                    }
                }
            }
            match looks.recv_timeout(if changed { Duration::ZERO } else { TICK }) {
                Ok(seen) => {
                    app.look(seen);
                    changed = true;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    anyhow::bail!("the thread that looks has ended")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{model::tests::look, *};
    use crate::flowtable::tests::flow;

    fn model() -> Model {
        let mut model = Model::default();
        model.update(look(1, vec![flow("veth-a", 1), flow("veth-b", 2)]));
        let mut sent = flow("veth-a", 1);
        sent.acked_bytes += 125_000;
        model.update(look(2, vec![sent, flow("veth-b", 2)]));
        model
    }

    #[test]
    fn tables_have_flows_tenants_and_counters() {
        let text = tables(&model(), &[0]);
        assert!(text.contains("1 of 2 flows, table 2 of 128"), "{text}");
        let tenant = text
            .lines()
            .find(|line| line.starts_with("veth-a  ") && line.contains("100"))
            .unwrap();
        assert!(
            tenant.contains("1.00M") && tenant.contains("~20.0K"),
            "{tenant}"
        );
        assert!(text.ends_with("packets 100 (50/s)\n"), "{text}");
    }

    #[test]
    fn json_has_what_tables_have() {
        let line = json_line(&model(), &[0]).unwrap();
        assert_eq!(line.matches('\n').count(), 1);
        let document: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(document["flows"].as_array().unwrap().len(), 1);
        assert_eq!(document["flows"][0]["rates"]["acked_bps"], 1e6);
        assert_eq!(document["flows"][0]["allowed_window_bytes"], 20_480);
        assert_eq!(document["tenants"][1]["tenant"], "veth-b");
        assert_eq!(document["tenants"][0]["rates"]["acked_bps"], 1e6);
        assert_eq!(document["totals"]["limited"], 2);
        assert_eq!(
            document["counters"][0],
            json!({"name": "packets", "value": 100, "per_second": 50.0})
        );
    }

    #[test]
    fn intervals_are_reasonable() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "nan", "1e9", "soon"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
