//! The screen of `top`: from an [`App`] to cells, nothing else.

use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Layout, Rect},
    style::{Color, Modifier, Style, Stylize},
    text::{Line, Span},
    widgets::{Block, Clear, Paragraph, Row as Cells, Sparkline, Table},
};

use super::{
    app::{App, View},
    model::{Model, Point, Totals, Trace},
};
use crate::{
    columns::{Align, bytes},
    flowtable::{Column, Row, rate},
};

/// Between columns.
const GAP: u16 = 2;

/// Sparklines take this much, where there is room.
const PLOTS_HEIGHT: u16 = 6;
const HEIGHT_FOR_PLOTS: u16 = 20;

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let plots = if frame.area().height >= HEIGHT_FOR_PLOTS {
        PLOTS_HEIGHT
    } else {
        0
    };
    let [head, body, below, keys] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Min(2),
        Constraint::Length(plots),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(summary(app)), head);
    app.scroll(usize::from(body.height.saturating_sub(1)));
    match app.view {
        View::Flows => draw_flows(frame, app, body),
        View::Tenants => draw_tenants(frame, app, body),
        View::Counters => draw_counters(frame, app, body),
    }
    if plots > 0 {
        draw_traces(frame, app, below);
    }
    frame.render_widget(Paragraph::new(bottom(app)), keys);
    if app.help {
        draw_help(frame);
    }
}

/// Three lines about everything.
fn summary(app: &App) -> Vec<Line<'static>> {
    let totals = &app.model.totals;
    vec![
        state(app),
        enforcement(totals, &app.model),
        traffic(totals, &app.model),
    ]
}

fn state(app: &App) -> Line<'static> {
    let totals = &app.model.totals;
    let mut spans = vec![
        "sluicegate top".bold(),
        format!(
            "  {} flows, {} active: {} enforced, {} observed, {} watched; table {} of {}",
            totals.flows,
            totals.active,
            totals.enforced,
            totals.observed,
            totals.watched,
            totals.flows,
            app.model.slots,
        )
        .into(),
    ];
    if app.paused {
        spans.push("  PAUSED".yellow().bold());
    }
    if let Some(trouble) = &app.trouble {
        spans.push(format!("  {trouble}").red());
    }
    Line::from(spans)
}

/// The effect of enforcement, or that which it would have.
fn enforcement(totals: &Totals, model: &Model) -> Line<'static> {
    let windows = format!(
        "windows: {} of {} offered, {} flows held to less{}",
        bytes(totals.allowed_window_bytes),
        bytes(totals.advertised_window_bytes),
        totals.limited,
        if totals.observed > 0 && totals.enforced == 0 {
            " (would be: observing)"
        } else {
            ""
        },
    );
    Line::from(vec![
        windows.into(),
        format!("; rewrites {}/s", counter_rate(model, "window_lowered")).into(),
        format!(
            ", would be {}/s more",
            counter_rate(model, "window_would_lower")
        )
        .into(),
    ])
}

fn traffic(totals: &Totals, model: &Model) -> Line<'static> {
    let rates = totals.rates.unwrap_or_default();
    let marked = rates.marked_share().map(|share| 100.0 * share);
    Line::from(format!(
        "sending {}b/s, receiving {}b/s, marked {}, srtt {}; {} packets/s, {:.1} losses/s, {:.1} policed/s",
        rate(rates.acked_bps),
        rate(rates.received_bps),
        marked.map_or_else(|| "-".to_owned(), |share| format!("{share:.1} %")),
        totals
            .srtt_us
            .map_or_else(|| "-".to_owned(), |us| format!("{us:.0} us")),
        counter_rate(model, "packets"),
        rates.losses_per_s,
        rates.policed_per_s,
    ))
}

fn counter_rate(model: &Model, name: &str) -> String {
    let per_second = model.counter(name).and_then(|counter| counter.per_second);
    per_second.map_or_else(|| "-".to_owned(), rate)
}

fn draw_flows(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let visible = app.shown.iter().skip(app.offset).take(app.page);
    let rows: Vec<&Row> = visible.map(|index| &app.model.rows[*index]).collect();
    let columns = Column::WATCHED.map(|column| {
        let sorted = column == app.order.column;
        let mark = match (sorted, app.order.descending) {
            (false, _) => "",
            (true, true) => "v",
            (true, false) => "^",
        };
        Drawn {
            title: format!("{}{mark}", column.title()),
            align: column.align(),
            keep: sorted,
            cells: rows.iter().map(|row| cell(column, row)).collect(),
        }
    });
    draw_table(frame, area, columns.into(), app.highlighted());
}

/// A cell, in the colour of what it means.
fn cell(column: Column, row: &Row) -> Span<'static> {
    let text = column.cell(row);
    let flow = &row.flow;
    match column {
        Column::Allowed if flow.is_limited() => text.yellow(),
        Column::Why if flow.mode == "watch" => text.red(),
        Column::Why if flow.is_observed() => text.cyan(),
        Column::Policed if flow.policed > 0 => text.red(),
        _ => text.into(),
    }
}

fn draw_tenants(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let tenants: Vec<_> = app
        .model
        .tenants
        .iter()
        .skip(app.offset)
        .take(app.page)
        .collect();
    let columns = super::tenant_columns()
        .into_iter()
        .map(|(title, align, text)| Drawn {
            title: title.to_owned(),
            align,
            keep: false,
            cells: tenants.iter().map(|tenant| text(tenant).into()).collect(),
        });
    draw_table(frame, area, columns.collect(), app.highlighted());
}

fn draw_counters(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let visible = app.model.counters.iter().skip(app.offset).take(app.page);
    let counters: Vec<_> = visible.collect();
    let columns = vec![
        Drawn {
            title: "counter".to_owned(),
            align: Align::Left,
            keep: false,
            cells: counters
                .iter()
                .map(|counter| counter.name.clone().into())
                .collect(),
        },
        Drawn {
            title: "total".to_owned(),
            align: Align::Right,
            keep: false,
            cells: counters
                .iter()
                .map(|counter| counter.value.to_string().into())
                .collect(),
        },
        Drawn {
            title: "per second".to_owned(),
            align: Align::Right,
            keep: false,
            cells: counters
                .iter()
                .map(|counter| {
                    counter
                        .per_second
                        .map_or_else(|| "-".to_owned(), rate)
                        .into()
                })
                .collect(),
        },
    ];
    draw_table(frame, area, columns, app.highlighted());
}

/// A column of what is on the screen.
struct Drawn {
    title: String,
    align: Align,
    /// Shown where others have no room.
    keep: bool,
    cells: Vec<Span<'static>>,
}

impl Drawn {
    fn width(&self) -> u16 {
        let cells = self.cells.iter().map(Span::width);
        let width = cells.chain([self.title.chars().count()]).max();
        u16::try_from(width.unwrap_or(0)).unwrap_or(u16::MAX)
    }

    fn line(&self, span: Span<'static>) -> Line<'static> {
        Line::from(span).alignment(match self.align {
            Align::Left => Alignment::Left,
            Align::Right => Alignment::Right,
        })
    }
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, columns: Vec<Drawn>, selected: Option<usize>) {
    let columns = fit(columns, area.width);
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let head = columns.iter().map(|column| {
        let title = column.title.clone().bold();
        column.line(if column.keep {
            title.underlined()
        } else {
            title
        })
    });
    let body = (0..rows).map(|row| {
        let chosen = selected == Some(row);
        let cells = columns.iter().map(|column| {
            let cell = column.cells[row].clone();
            // Colours on a reversed row are hard to read.
            column.line(if chosen { cell.content.into() } else { cell })
        });
        let style = if chosen {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        };
        Cells::new(cells.collect::<Vec<_>>()).style(style)
    });
    let widths = columns
        .iter()
        .map(|column| Constraint::Length(column.width()));
    let table = Table::new(body.collect::<Vec<_>>(), widths.collect::<Vec<_>>())
        .header(Cells::new(head.collect::<Vec<_>>()))
        .column_spacing(GAP);
    frame.render_widget(table, area);
}

/// From the left as many as fit, with those that are to be kept.
fn fit(columns: Vec<Drawn>, width: u16) -> Vec<Drawn> {
    let kept: u16 = columns
        .iter()
        .filter(|column| column.keep)
        .map(|column| column.width().saturating_add(GAP))
        .sum();
    let mut left = width.saturating_add(GAP).saturating_sub(kept);
    let mut full = false;
    let mut fitting = Vec::with_capacity(columns.len());
    for column in columns {
        let takes = column.width().saturating_add(GAP);
        full |= !column.keep && takes > left;
        if column.keep {
            fitting.push(column);
        } else if !full {
            left -= takes;
            fitting.push(column);
        }
    }
    fitting
}

/// One of the sparklines.
struct Plot {
    name: &'static str,
    value: fn(&Point) -> f64,
    text: fn(f64) -> String,
    colour: Color,
}

const PLOTS: [Plot; 3] = [
    Plot {
        name: "goodput",
        value: |point| point.goodput_bps.into(),
        text: |bps| format!("{}b/s", rate(bps)),
        colour: Color::Green,
    },
    Plot {
        name: "marked",
        value: |point| point.marked_share.into(),
        text: |share| format!("{:.1} %", 100.0 * share),
        colour: Color::Yellow,
    },
    Plot {
        name: "srtt",
        value: |point| point.srtt_us.into(),
        text: |us| format!("{us:.0} us"),
        colour: Color::Cyan,
    },
];

/// The history: of the selected flow or tenant, else of everything.
fn draw_traces(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let (of, trace) = traced(app);
    let areas = Layout::horizontal([Constraint::Fill(1); PLOTS.len()])
        .spacing(1)
        .split(area);
    for (plot, area) in PLOTS.iter().zip(areas.iter()) {
        let room = usize::from(area.width.saturating_sub(2));
        let points = trace.into_iter().flat_map(|trace| trace.points().rev());
        let mut values: Vec<f64> = points.take(room).map(plot.value).collect();
        values.reverse();
        let most = values.iter().copied().fold(0.0, f64::max);
        let title = format!(
            " {} of {of}: {}, max {} ",
            plot.name,
            (plot.text)(values.last().copied().unwrap_or(0.0)),
            (plot.text)(most)
        );
        // Sparklines take whole numbers; a thousandth of the largest is less than a screen shows.
        let heights: Vec<u64> = values
            .iter()
            .map(|value| (1000.0 * value / most.max(f64::MIN_POSITIVE)) as u64)
            .collect();
        let line = Sparkline::default()
            .data(heights)
            .max(1000)
            .style(Style::new().fg(plot.colour))
            .block(Block::bordered().title(title));
        frame.render_widget(line, *area);
    }
}

fn traced(app: &App) -> (String, Option<&Trace>) {
    if let Some(tenant) = app.tenant() {
        return (
            tenant.tenant.clone(),
            app.model.tenant_trace(&tenant.tenant),
        );
    }
    match app.chosen_flow() {
        Some(flow) => (flow.local.to_string(), app.model.flow_trace(flow)),
        None => ("all".to_owned(), Some(app.model.trace())),
    }
}

/// The filter, and which keys there are.
fn bottom(app: &App) -> Line<'static> {
    if let Some(typing) = &app.typing {
        let mut spans = vec![format!("filter: {}", typing.text).into(), "_".reversed()];
        if let Some(problem) = &typing.problem {
            spans.push(format!("  {problem}").red());
        }
        return Line::from(spans);
    }
    let mut spans =
        vec![" q quit  tab view  / filter  <> sort  r reverse  space pause  ? help ".reversed()];
    if !app.filter_text.is_empty() {
        spans.push(format!("  filter: {} (Esc ends it)", app.filter_text).yellow());
    }
    spans.push(format!("  {} of {}", app.rows(), app.all_rows()).into());
    Line::from(spans)
}

const HELP: [&str; 23] = [
    "tab            next view: flows, tenants, counters (f, t, c)",
    "< > left right sort flows by the column beside",
    "r              sort the other way round",
    "/              filter flows; Enter takes it, Esc takes it back",
    "               text            in any name",
    "               column=text     is, column~text has",
    "               column<number   also <= = >= >; K M G",
    "               !word           all others",
    "up down        select: the plots below are about it",
    "Home           to the top, nothing selected",
    "Esc            no filter, nothing selected",
    "Enter          flows of the selected tenant",
    "space, p       pause",
    "q              quit",
    "",
    "allowed        receive window that the tenant is held to; with ~",
    "               it would be, if the rule enforced",
    "peer's         receive window that the peer offers",
    "mark %         acknowledged bytes that met congestion marks",
    "send, recv     acknowledged and received payload",
    "why            why the flow is not enforced, or not from both",
    "               ends; observe: the rule only looks",
    "any key        back",
];

fn draw_help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let wide = HELP.iter().map(|line| line.len()).max().unwrap_or(0) + 4;
    let width = u16::try_from(wide).unwrap_or(u16::MAX).min(area.width);
    let height = (HELP.len() as u16 + 2).min(area.height);
    let window = Rect {
        x: (area.width - width) / 2,
        y: (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, window);
    let lines: Vec<Line<'_>> = HELP
        .iter()
        .map(|line| Line::from(format!(" {line}")))
        .collect();
    frame.render_widget(
        Paragraph::new(lines).block(Block::bordered().title(" keys ")),
        window,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        flowtable::{Filter, Order, tests::flow},
        top::{
            app::tests::{app, press, running, write},
            model::tests::look,
        },
    };
    use ratatui::{Terminal, backend::TestBackend, crossterm::event::KeyCode};

    fn screen(app: &mut App, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, app)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn flows_are_rows_and_what_would_be_has_a_tilde() {
        let shown = screen(&mut running(), 160, 24);
        let row = shown
            .lines()
            .find(|line| line.contains("10.0.0.1:4 "))
            .unwrap();
        for part in [
            "veth-a",
            "10.0.0.2:5201",
            "~20.0K",
            "1.0M",
            "observe",
            "dctcp",
        ] {
            assert!(row.contains(part), "{part} in {row}");
        }
        assert!(
            shown.contains("4 flows, 4 active: 0 enforced, 4 observed, 0 watched; table 4 of 128"),
            "{shown}"
        );
        assert!(
            shown.contains("80.0K of 4.0M offered, 4 flows held to less (would be: observing)"),
            "{shown}"
        );
        assert!(shown.contains("send b/sv"), "{shown}");
        assert!(
            shown.contains("goodput of all: 80b/s, max 80b/s"),
            "{shown}"
        );
        assert!(
            shown.contains("50.0 packets/s") || shown.contains("50 packets/s"),
            "{shown}"
        );
    }

    #[test]
    fn a_narrow_screen_keeps_the_column_that_sorts() {
        let mut app = running();
        app.order = Order::natural(Column::Rule);
        let shown = screen(&mut app, 60, 24);
        assert!(
            shown.contains("rulev") && shown.contains("tenant"),
            "{shown}"
        );
        assert!(!shown.contains("algorithm"), "{shown}");
    }

    #[test]
    fn no_size_of_a_screen_is_too_small() {
        let mut app = running();
        press(&mut app, KeyCode::Char('?'));
        for width in [1, 2, 10, 40, 300] {
            for height in [1, 2, 5, 19, 20, 100] {
                screen(&mut app, width, height);
            }
        }
    }

    #[test]
    fn the_plots_are_about_what_is_selected() {
        let mut app = running();
        press(&mut app, KeyCode::Down);
        assert!(screen(&mut app, 160, 24).contains("srtt of 10.0.0.1:3: 250 us, max 250 us"));
        press(&mut app, KeyCode::Tab);
        let shown = screen(&mut app, 160, 24);
        assert!(shown.contains("goodput of veth-a: 48b/s"), "{shown}");
    }

    #[test]
    fn counters_and_the_filter_have_their_places() {
        let mut app = running();
        press(&mut app, KeyCode::Char('c'));
        let shown = screen(&mut app, 100, 24);
        let row = shown
            .lines()
            .find(|line| line.contains("packets  "))
            .unwrap();
        assert!(row.contains("100") && row.contains("50"), "{row}");
        press(&mut app, KeyCode::Char('/'));
        write(&mut app, "veth-b speed=");
        let shown = screen(&mut app, 100, 24);
        assert!(
            shown.contains("filter: veth-b speed=_  no column `speed`"),
            "{shown}"
        );
        press(&mut app, KeyCode::Esc);
        press(&mut app, KeyCode::Char('/'));
        write(&mut app, "veth-b");
        press(&mut app, KeyCode::Enter);
        assert!(screen(&mut app, 120, 24).contains("filter: veth-b (Esc ends it)  2 of 4"));
    }

    #[test]
    fn help_and_trouble_are_seen() {
        let mut app = running();
        press(&mut app, KeyCode::Char('?'));
        assert!(screen(&mut app, 100, 30).contains("filter flows; Enter takes it"));
        press(&mut app, KeyCode::Char('x'));
        app.look(Err("the pins are gone".to_owned()));
        press(&mut app, KeyCode::Char(' '));
        let shown = screen(&mut app, 120, 30);
        assert!(shown.contains("the pins are gone") && shown.contains("PAUSED"));
        assert!(!shown.contains("Enter takes it"));
    }

    #[test]
    fn only_rows_that_are_seen_are_drawn() {
        let many = (1..=10_000).map(|port| flow("veth-a", port)).collect();
        let mut app = App::new(Filter::default(), Order::natural(Column::Local));
        app.look(Ok(look(1, many)));
        press(&mut app, KeyCode::End);
        let shown = screen(&mut app, 120, 30);
        assert!(shown.contains("10.0.0.1:9999"), "{shown}");
        assert_eq!(shown.matches("10.0.0.2:5201").count(), 19);
    }

    #[test]
    fn before_the_first_look_there_is_a_screen() {
        assert!(screen(&mut app(), 100, 30).contains("0 flows"));
    }
}
