/** The look of the status page: dark or light as the reader has it, one column on a phone. */

export const STYLE = `
:root {
  color-scheme: light dark;
  --ground: #f5f6f8; --card: #fff; --ink: #1c2128; --quiet: #57606a; --line: #d5dbe1;
  --blue: #0969da; --red: #cf222e; --amber: #b45309; --green: #1a7f37; --violet: #8250df;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #0d1117; --card: #161b22; --ink: #e6edf3; --quiet: #9aa4af; --line: #30363d;
    --blue: #4c9aff; --red: #ff6a61; --amber: #e3a33b; --green: #46c05a; --violet: #b18cff;
  }
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
body {
  margin: 0 auto; max-width: 76rem; padding: 1rem clamp(0.75rem, 3vw, 2rem) 2rem;
  background: var(--ground); color: var(--ink);
  font: 0.9375rem/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  font-variant-numeric: tabular-nums;
}
h1, h2, p, ul, figure { margin: 0; padding: 0; }
ul { list-style: none; }
h1 { font-size: 1.125rem; }
h2 { font-size: 0.875rem; font-weight: 600; }
a { color: var(--blue); }
code, .org, .code, .list { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 0.8125rem; }
.quiet { color: var(--quiet); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 0.625rem; padding: 0.875rem 1rem; }

header { display: flex; flex-wrap: wrap; align-items: center; gap: 0.25rem 1rem; margin-bottom: 1rem; }
#state { display: inline-flex; align-items: center; gap: 0.5rem; margin-right: 0.5rem; }
#state::before { content: ""; width: 0.75rem; height: 0.75rem; border-radius: 50%; background: currentColor; }
#state[data-state="ready"] { color: var(--green); }
#state[data-state="not-ready"] { color: var(--amber); }
#state[data-state="away"] { color: var(--red); }
#checks { flex-basis: 100%; color: var(--amber); }
#checks li::before { content: "✕ "; }
main { display: grid; gap: 1rem; transition: opacity 0.2s; }
.is-away main { opacity: 0.45; }

.tiles { display: grid; gap: 0.75rem; grid-template-columns: repeat(4, minmax(0, 1fr)); }
.tile .figure { font-size: 1.75rem; font-weight: 600; line-height: 1.3; }
.tile .notes { font-size: 0.8125rem; }
.is-troubled .figure { color: var(--amber); }

.plots { display: grid; gap: 0.75rem; grid-template-columns: repeat(3, minmax(0, 1fr)); }
.plot { display: flex; flex-direction: column; gap: 0.5rem; }
.head { display: flex; flex-wrap: wrap; align-items: baseline; justify-content: space-between; gap: 0.25rem 1rem; }
.head .quiet { font-size: 0.8125rem; }
.frame { position: relative; height: 7.5rem; margin-top: 0.625rem; touch-action: pan-y; cursor: crosshair; }
.frame svg { display: block; width: 100%; height: 100%; overflow: visible; }
.ticks { position: absolute; inset: 0; pointer-events: none; font-size: 0.6875rem; line-height: 1.2; color: var(--quiet); }
.ticks li { position: absolute; inset-inline: 0; transform: translateY(-100%); border-bottom: 1px solid var(--line); }
.empty { position: absolute; inset: 0; display: none; place-content: center; font-size: 0.8125rem; color: var(--quiet); }
.is-empty .empty { display: grid; }
.is-empty .ticks, .is-empty svg { visibility: hidden; }
.crosshair { stroke: var(--quiet); vector-effect: non-scaling-stroke; }
.stroke { fill: none; stroke: var(--colour); stroke-width: 1.75; stroke-linejoin: round; stroke-linecap: round; vector-effect: non-scaling-stroke; }
.area { fill: var(--colour); opacity: 0.16; }
.is-stacked .area { opacity: 0.6; }
.is-stacked .stroke { display: none; }
.blue { --colour: var(--blue); } .red { --colour: var(--red); } .amber { --colour: var(--amber); }
.green { --colour: var(--green); } .violet { --colour: var(--violet); }
.legend { display: flex; flex-wrap: wrap; gap: 0.125rem 1rem; font-size: 0.8125rem; }
.key { display: inline-flex; align-items: baseline; gap: 0.375rem; }
.key::before { content: ""; align-self: center; width: 0.625rem; height: 0.625rem; border-radius: 0.1875rem; background: var(--colour); }
.key .name { color: var(--quiet); }

input { font: inherit; color: inherit; background: var(--ground); border: 1px solid var(--line); border-radius: 0.375rem; padding: 0.25rem 0.5rem; margin-left: auto; }
table { width: 100%; border-collapse: collapse; margin-top: 0.5rem; }
th, td { text-align: left; padding: 0.375rem 1rem 0.375rem 0; border-top: 1px solid var(--line); font-weight: 400; vertical-align: middle; }
thead th { border: 0; color: var(--quiet); font-size: 0.8125rem; }
.org { max-width: 20rem; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.age-text { display: inline-block; min-width: 10.5rem; }
.bar { width: 5rem; height: 0.375rem; vertical-align: middle; appearance: none; border: 0; border-radius: 1rem; overflow: hidden; background: var(--line); }
.bar::-webkit-progress-bar { background: var(--line); }
.bar::-webkit-progress-value { background: var(--blue); }
.bar::-moz-progress-bar { background: var(--blue); }
.badge { display: inline-block; border: 1px solid currentColor; border-radius: 1rem; padding: 0 0.5rem; font-size: 0.75rem; color: var(--quiet); }
.status, [data-state="refused"], [data-state="rejected"] { color: var(--red); }
[data-state="fresh"] { color: var(--green); }
[data-state="refreshing"] { color: var(--blue); }

.error { padding: 0.625rem 0; border-top: 1px solid var(--line); }
.error:first-child { border: 0; }
.error-head > * { margin-right: 0.625rem; }
.examples summary { cursor: pointer; }
.list { overflow-wrap: anywhere; padding: 0.25rem 0 0 1rem; }
footer { margin-top: 1rem; font-size: 0.8125rem; overflow-wrap: anywhere; }

@media (max-width: 60rem) {
  .plots { grid-template-columns: minmax(0, 1fr); }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); }
}
@media (max-width: 40rem) {
  .tile .figure { font-size: 1.5rem; }
  thead { display: none; }
  tr { display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: 0.125rem 1rem; padding: 0.5rem 0; border-top: 1px solid var(--line); }
  tr:first-child { border: 0; }
  th, td { border: 0; padding: 0; }
  .org { max-width: none; font-weight: 600; }
  .age, .refusal { grid-column: 1 / -1; }
  .age:has([hidden]) { display: none; }
  .refusal:not(:empty)::before { content: "Refused: "; color: var(--quiet); }
  .age-text { min-width: 0; margin-right: 0.5rem; }
}
`
