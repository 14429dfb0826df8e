/**
 * The style sheet of every page. Text has a contrast of at least 4.5:1 against its background in both colour schemes; lines and tracks have less.
 */
export const STYLE = `
:root {
  color-scheme: light dark;
  --page: light-dark(#f6f4f0, #141311); --card: light-dark(#ffffff, #1d1b18); --soft: light-dark(#f3f0ea, #282520);
  --line: light-dark(#e2ddd4, #36322c); --text: light-dark(#1f1c18, #ece8e1); --muted: light-dark(#625b51, #a9a196);
  --accent: light-dark(#8a4b12, #e0a060); --on-accent: light-dark(#ffffff, #1d1409);
  --good: light-dark(#1b6b3f, #74c898); --bad: light-dark(#a8281c, #ff9285); --wait: light-dark(#83560a, #e6b866);
  --busy: light-dark(#22609c, #8abdf0); --track: light-dark(#ebe6dd, #322e28);
  --mono: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
}
*, ::before, ::after { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-padding-top: 4.5rem; }
body { margin: 0; min-height: 100vh; display: flex; flex-direction: column; background: var(--page); color: var(--text);
  font: 15px/1.5 -apple-system, BlinkMacSystemFont, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", system-ui, sans-serif; overflow-wrap: break-word; }
.inner, main { width: 100%; max-width: 72rem; margin: 0 auto; padding: 0 1.5rem; }
main { flex: 1; padding-top: 1.75rem; padding-bottom: 3rem; outline: none; }
a { color: var(--accent); text-underline-offset: .18em; text-decoration-thickness: 1px; }
a:hover { text-decoration-thickness: 2px; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 4px; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0; letter-spacing: -.01em; overflow-wrap: anywhere; }
h1.mono { font-size: 1.2rem; }
h2 { font-size: 1rem; line-height: 1.4; margin: 0; }
h3 { font-size: .9rem; margin: 0; }
p { margin: 0 0 .6rem; } p:last-child { margin-bottom: 0; }
code, pre, .mono { font-family: var(--mono); font-size: .88em; }
small { font-size: .82rem; }
.muted, small { color: var(--muted); }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.skip { position: absolute; left: -100vw; top: .5rem; z-index: 3; background: var(--card); padding: .4rem .8rem; border-radius: 6px; }
.skip:focus { left: .5rem; }

.top { position: sticky; top: 0; z-index: 2; background: var(--card); border-bottom: 1px solid var(--line); }
.top .inner { display: flex; align-items: center; gap: 0 1.75rem; min-height: 3.4rem; }
.brand { display: flex; align-items: center; gap: .5rem; color: var(--text); font-weight: 650; text-decoration: none; }
.crust { fill: none; stroke: var(--accent); stroke-width: 2; } .slice { fill: var(--accent); }
nav ul { display: flex; gap: .25rem; list-style: none; margin: 0; padding: 0; }
nav a { display: block; padding: .35rem .7rem; border-radius: 6px; color: var(--muted); text-decoration: none; }
nav a:hover { color: var(--text); background: var(--soft); }
nav a[aria-current] { color: var(--text); font-weight: 600; background: var(--soft); }
.who { margin-left: auto; display: flex; align-items: center; gap: 1rem; color: var(--muted); min-width: 0; }
.who > span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.bottom { border-top: 1px solid var(--line); color: var(--muted); font-size: .85rem; }
.bottom .inner { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; padding-top: .9rem; padding-bottom: .9rem; align-items: center; }
.live-state { margin-left: auto; display: inline-flex; align-items: center; gap: .45rem; }
.live-state[data-kind]::before { content: ""; width: .5rem; height: .5rem; border-radius: 50%; background: var(--muted); }
.live-state[data-kind=on]::before { background: var(--good); } .live-state[data-kind=trouble]::before { background: var(--wait); }

.head { display: flex; flex-wrap: wrap; align-items: center; gap: .5rem 1.25rem; margin-bottom: 1.25rem; }
.head > .titles { flex: 1 1 16rem; min-width: 0; } .head p { color: var(--muted); margin: .15rem 0 0; }
.bare > .head { margin-bottom: .25rem; }
.crumbs { font-size: .85rem; margin-bottom: .35rem; color: var(--muted); }
.grid { display: grid; gap: 1rem; grid-template-columns: repeat(2, minmax(0, 1fr)); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1.1rem 1.25rem; min-width: 0; }
.wide { grid-column: 1 / -1; }
.grid > :empty { display: none; }
.section { margin-bottom: 1rem; }
.bare { background: none; border: 0; padding: 0; }
.card > h2, .card-head { margin-bottom: .75rem; }
.card-head { display: flex; flex-wrap: wrap; gap: .25rem 1rem; align-items: baseline; justify-content: space-between; }
.card h3 { margin: 1.1rem 0 .5rem; }

.tiles { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); margin: 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: .8rem 1rem; min-width: 0; }
.tile dt { color: var(--muted); font-size: .85rem; }
.tile dd { margin: .1rem 0 0; font-size: 1.5rem; font-weight: 600; line-height: 1.25; font-variant-numeric: tabular-nums; letter-spacing: -.01em; }
.tile small { display: block; font-weight: 400; letter-spacing: 0; }
.facts { display: grid; gap: .9rem 1.5rem; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); margin: 0; }
.facts dt { color: var(--muted); font-size: .82rem; } .facts dd { margin: 0; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }

table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 500; font-size: .82rem; color: var(--muted); padding: 0 1rem .45rem 0; border-bottom: 1px solid var(--line); }
td { padding: .5rem 1rem .5rem 0; border-bottom: 1px solid var(--line); vertical-align: baseline; }
tbody tr:last-child td { border-bottom: 0; padding-bottom: 0; }
th:last-child, td:last-child { padding-right: 0; }
.number { text-align: right; } td.number { white-space: nowrap; }
.bar { display: block; min-width: 5rem; margin: .3rem 0; border-radius: 4px; overflow: hidden; }
.track { fill: var(--track); } .bar .fill { fill: var(--busy); } .bar.wait .fill { fill: var(--wait); } .bar.bad .fill { fill: var(--bad); }
.bar.sum .fill { fill: var(--accent); }
.waterfall { list-style: none; margin: 0; padding: 0; display: grid; gap: .7rem; } .waterfall .step { display: flex; justify-content: space-between; gap: 1rem; font-variant-numeric: tabular-nums; } .waterfall strong { font-weight: 550; } .waterfall .step > :first-child { overflow-wrap: anywhere; } .waterfall .step > :last-child { flex: none; }
.waterfall .part > :not(svg) { padding-left: 1.2rem; } .waterfall .part strong { font-weight: 450; }
.quota { display: grid; gap: 1.1rem 2rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 19.5rem), 1fr)); list-style: none; margin: 0; padding: 0; }
.quota .line { display: flex; justify-content: space-between; gap: 1rem; font-variant-numeric: tabular-nums; }
.quota .line > :last-child { flex: none; white-space: nowrap; }
.quota strong { font-weight: 550; }

.badge { display: inline-flex; align-items: center; gap: .4rem; white-space: nowrap; }
.badge::before { content: ""; width: .55rem; height: .55rem; border-radius: 50%; background: currentColor; flex: none; }
.badge.good { color: var(--good); } .badge.bad { color: var(--bad); } .badge.wait { color: var(--wait); }
.badge.busy { color: var(--busy); } .badge.quiet { color: var(--muted); }
.badge.wait::before { background: none; border: 2px solid currentColor; }

.chart { margin: 0; } .chart svg { display: block; width: 100%; height: 4.5rem; }
.chart .columns rect { fill: var(--busy); } .chart .columns .hover-area { fill: transparent; } .columns g:hover .hover-area { fill: var(--soft); }
.chart .lines path { fill: none; stroke-width: 2; vector-effect: non-scaling-stroke; stroke-linejoin: round; stroke-linecap: round; }
.chart .dot { stroke-width: 5 !important; }
.line-0 { stroke: var(--busy); } .line-1 { stroke: var(--accent); opacity: .75; }
.chart figcaption { display: flex; justify-content: space-between; gap: .5rem; border-top: 1px solid var(--line); padding-top: .3rem; color: var(--muted); font-size: .8rem; }
.peak { display: block; text-align: right; color: var(--muted); font-size: .8rem; line-height: 1.2; min-height: 1rem; font-variant-numeric: tabular-nums; }
.key { display: inline-flex; gap: 1rem; } .key > span::before { content: ""; display: inline-block; width: .9rem; height: 2px; margin-right: .35rem; vertical-align: .28em; background: var(--busy); }
.key .key-1::before { background: var(--accent); }

details { margin-top: .9rem; } summary { cursor: pointer; color: var(--muted); font-size: .88rem; width: fit-content; border-radius: 4px; }
details .scroll { margin-top: .6rem; }
.scroll { overflow: auto; max-height: 22rem; }
.sideways { overflow-x: auto; }
td .bar { display: inline-block; margin: 0; vertical-align: middle; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.55; tab-size: 2; }
.console { background: var(--soft); border-radius: 8px; padding: .9rem 1rem; overflow: auto; max-height: 26rem; min-height: 5rem; }
.output { font: inherit; } .fitted { min-height: 0; } .fitted + form { margin-top: 1rem; }
.rows { list-style: none; margin: 0; font-family: var(--mono); font-size: .82rem; }
.rows li { display: grid; grid-template-columns: 2.2rem 4.6rem minmax(0, 1fr); gap: .75rem; padding: .1rem 0; }
.rows .seq { color: var(--muted); } .rows .what { overflow-wrap: anywhere; white-space: pre-wrap; }
.rows .error .kind, .rows .level-error .kind { color: var(--bad); } .rows .level-warn .kind { color: var(--wait); } .rows .result .kind { color: var(--good); }

.empty { padding: .4rem 0; } .empty p { margin: 0 0 .2rem; }
.notice { border: 1px solid var(--line); border-left: 4px solid var(--muted); border-radius: 8px; padding: .65rem .9rem; margin: 0 0 1rem; background: var(--card); }
.notice.bad { border-left-color: var(--bad); } .notice.good { border-left-color: var(--good); }
.card > .notice { margin: 0; }

form { margin: 0; } label { display: block; font-size: .85rem; color: var(--muted); margin-bottom: .25rem; }
input, select, textarea, button, .button { font: inherit; color: var(--text); background: var(--card); border: 1px solid light-dark(#8f877b, #6d665c); border-radius: 7px; padding: .42rem .75rem; min-height: 2.4rem; max-width: 100%; }
input, textarea { width: 100%; } textarea { display: block; resize: vertical; line-height: 1.45; } textarea.mono { font-family: var(--mono); font-size: .88em; }
.fields { display: grid; gap: 1rem 1.5rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 18rem), 1fr)); align-items: start; } .fields > div { min-width: 0; } .fields select { width: 100%; } .fields > div:only-child { grid-column: 1 / -1; }
.fields small { display: block; margin-top: .25rem; } .fields label small { display: inline; } .fault { color: var(--bad); } [aria-invalid] { border-color: var(--bad); }
button, .button { cursor: pointer; display: inline-flex; align-items: center; justify-content: center; text-decoration: none; font-weight: 550; font-size: .95rem; width: fit-content; }
button:hover, .button:hover { background: var(--soft); }
.primary, .primary:hover { background: var(--accent); border-color: var(--accent); color: var(--on-accent); }
.danger { color: var(--bad); border-color: var(--bad); }
.link, .link:hover { background: none; border: 0; padding: 0; min-height: 0; color: var(--accent); font-weight: 400; text-decoration: underline; text-underline-offset: .18em; text-decoration-thickness: 1px; white-space: nowrap; }
.row { display: flex; flex-wrap: wrap; gap: .75rem; align-items: flex-end; } .row > div { flex: 0 1 14rem; min-width: 0; } .row select { width: 100%; }
.charts { display: grid; gap: 1rem 2rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 15rem), 1fr)); margin-bottom: 1.25rem; } .charts h3 { margin: 0; }
fieldset { border: 0; margin: .9rem 0 0; padding: 0; display: flex; flex-wrap: wrap; gap: .35rem 1.25rem; } legend { padding: 0; font-size: .85rem; color: var(--muted); }
.check { display: inline-flex; align-items: center; gap: .45rem; margin: 0; color: var(--text); } .check input { width: auto; min-height: 0; }
.actions { display: flex; flex-wrap: wrap; gap: .75rem; align-items: center; margin-top: 1rem; }
details.confirm { margin: 0; position: relative; } details.confirm > summary { list-style: none; } details.confirm > summary::-webkit-details-marker { display: none; }
details.confirm[open] > .panel { margin-top: .5rem; }
.panel p { color: var(--text); margin: 0 0 .75rem; }
.panel { max-width: 24rem; background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1rem; }
@media (min-width: 40.01rem) { details.confirm[open] > .panel { position: absolute; right: 0; z-index: 1; width: 21rem; box-shadow: 0 8px 30px rgb(0 0 0 / .18); } }
.sign-in { max-width: 25rem; margin: 8vh auto 0; } .sign-in .card { padding: 1.75rem; } .sign-in h1 { margin-bottom: .35rem; } .sign-in form { margin-top: 1.25rem; } .sign-in button { width: 100%; margin-top: 1rem; } .hint { margin-top: 1rem; padding: 0 .25rem; font-size: .88rem; }
.diff table { table-layout: fixed; } .diff th:first-child { width: 22%; } .diff td { overflow-wrap: anywhere; } .from { color: var(--bad); } .to { color: var(--good); }
.shares { display: grid; gap: .15rem; } .stack { display: grid; gap: 1rem; }

@media (max-width: 52rem) { .grid { grid-template-columns: minmax(0, 1fr); } }
@media (max-width: 40rem) {
  .inner, main { padding-left: 1rem; padding-right: 1rem; } main { padding-top: 1.25rem; }
  .top .inner { flex-wrap: wrap; padding-top: .6rem; padding-bottom: .4rem; gap: .35rem 1rem; }
  nav { order: 3; width: 100%; } nav ul { gap: 0; margin: 0 -.35rem; flex-wrap: wrap; justify-content: space-between; }
  nav a { padding: .45rem .35rem; font-size: .8rem; }
  .card { padding: 1rem; } .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: .75rem; } .tile dd { font-size: 1.3rem; } .tile:last-child:nth-child(odd) { grid-column: 1 / -1; }
  th, td { padding-right: .6rem; } table.cards, .cards tbody { display: block; } .cards thead { display: none; }
  .cards tr { display: block; padding: .7rem 0; border-bottom: 1px solid var(--line); } .cards tr:first-child { padding-top: 0; } .cards tr:last-child { border-bottom: 0; padding-bottom: 0; }
  .cards td { display: flex; justify-content: space-between; gap: 1rem; border: 0; padding: .16rem 0; text-align: right; white-space: normal; }
  .cards td::before { content: attr(data-label); color: var(--muted); text-align: left; flex: none; }
  .cards td[data-label=""]::before { content: none; }
  .cards td > span { min-width: 0; overflow-wrap: anywhere; } .cards .bar { width: 9rem; }
  .rows li { grid-template-columns: 2rem 4rem minmax(0, 1fr); gap: .5rem; }
  .facts { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: .8rem 1rem; }
  .row > div { flex: 1 1 100%; } .live-state { margin-left: 0; }
}
@media print { .top, .bottom, form { display: none; } }
`;

export const ICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><circle cx="12" cy="12" r="10" fill="none" stroke="#b5651d" stroke-width="2.4"/><path d="M12 12V3.2A8.8 8.8 0 0 1 20.8 12z" fill="#b5651d"/></svg>`;
