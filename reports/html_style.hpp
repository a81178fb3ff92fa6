// Style and script of the HTML page. The page reads without the script; it adds the copy buttons.
#pragma once

#include <string_view>

namespace attest {

inline constexpr std::string_view html_style = R"css(
:root { color-scheme: light dark;
  --ink: #1b1f24; --soft: #59636e; --line: #d9dee3; --page: #f6f7f9; --card: #ffffff; --link: #0b5cad; --shade: #eef1f4;
  --pass: #136c34; --pass-bg: #dcf3e3; --fail: #a3121f; --fail-bg: #fde1e1; --suspect: #8a4b00; --suspect-bg: #ffeccc;
  --undecided: #5b3a9e; --undecided-bg: #ebe4fb; --not_run: #545d66; --not_run-bg: #e7eaed; }
@media (prefers-color-scheme: dark) { :root {
  --ink: #e4e8ec; --soft: #9aa5b1; --line: #323a43; --page: #12161b; --card: #1a2027; --link: #7bb8f5; --shade: #232b34;
  --pass: #7fdc9c; --pass-bg: #12351f; --fail: #ff9c9c; --fail-bg: #4a1519; --suspect: #ffc56b; --suspect-bg: #43300d;
  --undecided: #c3aef7; --undecided-bg: #2f2350; --not_run: #b0b9c2; --not_run-bg: #2b333b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 28px 24px 64px; }
h1 { font-size: 15px; font-weight: 600; margin: 0 0 4px; color: var(--soft); letter-spacing: .02em; }
.headline { font-size: 30px; line-height: 1.2; font-weight: 680; margin: 0 0 18px; letter-spacing: -.01em; }
h2 { font-size: 20px; margin: 44px 0 6px; letter-spacing: -.005em; }
h3 { font-size: 15px; margin: 0 0 2px; }
p { margin: 6px 0 12px; max-width: 76ch; }
a { color: var(--link); }
.soft { color: var(--soft); }
code, .mono { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .88em; unicode-bidi: isolate; }
code { overflow-wrap: anywhere; } code.name { overflow-wrap: break-word; }
.bits { color: var(--soft); } .bits code { font-size: .8em; }
.tiles { display: grid; grid-template-columns: repeat(5, 1fr); gap: 10px; margin: 0 0 14px; }
.tile { border-radius: 10px; padding: 10px 14px; border: 1px solid transparent; }
.tile { font-size: 13px; letter-spacing: .02em; }
.tile b { display: block; font-size: 26px; line-height: 1.15; font-variant-numeric: tabular-nums; }
.tile.zero { background: var(--card); border-color: var(--line); color: var(--soft); }
.v-pass { color: var(--pass); background: var(--pass-bg); } .v-fail { color: var(--fail); background: var(--fail-bg); }
.v-suspect { color: var(--suspect); background: var(--suspect-bg); } .v-undecided { color: var(--undecided); background: var(--undecided-bg); }
.v-not_run { color: var(--not_run); background: var(--not_run-bg); }
.badge { display: inline-block; border-radius: 999px; padding: 1px 9px; font-size: 12px; font-weight: 650; letter-spacing: .03em; white-space: nowrap; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 14px 16px; }
.warning { border-left: 5px solid var(--fail); margin: 0 0 14px; }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: 3px 16px; margin: 0; }
dl.facts dt { color: var(--soft); } dl.facts dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
dl.answers { display: grid; gap: 9px; margin: 0 0 12px; }
dl.answers > div { display: grid; grid-template-columns: 168px minmax(0, 1fr); gap: 14px; }
dl.answers dt { font-weight: 650; } dl.answers dd { margin: 0; min-width: 0; }
dl.answers .replay { margin: 0; }
.counts { margin: -6px 0 10px; font-size: 13px; max-width: none; }
details.made { font-size: 13px; } details.made .card { margin: 4px 0 0; }
nav { display: flex; flex-wrap: wrap; gap: 6px; margin: 14px 0 0; }
nav a { text-decoration: none; border: 1px solid var(--line); background: var(--card); border-radius: 999px; padding: 2px 11px; font-size: 13px; }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th { text-align: left; font-weight: 600; color: var(--soft); white-space: nowrap; }
th, td { padding: 5px 7px; vertical-align: top; }
thead tr:last-child th { border-bottom: 1px solid var(--line); }
thead th.group { text-align: center; border-bottom: 1px solid var(--line); padding-bottom: 2px; }
tbody tr + tr td { border-top: 1px solid var(--line); }
tbody tr.operator th { white-space: normal; background: var(--shade); color: var(--ink); border-top: 1px solid var(--line); padding-top: 5px; padding-bottom: 5px; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.name { width: 100%; min-width: 200px; }
td .sub, th .sub { color: var(--soft); font-weight: 400; font-size: 12px; overflow-wrap: anywhere; }
td.over { color: var(--fail); font-weight: 650; }
.figures { columns: 2; column-gap: 16px; margin: 14px 0 0; }
.figures.tables { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 16px; }
.whole { white-space: nowrap; }
figure { break-inside: avoid; margin: 0 0 16px; background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 14px 16px; min-width: 0; }
figure .plot { margin: 8px 0; }
figure svg { display: block; width: 100%; height: auto; max-width: 600px; margin: 0 auto; }
figcaption { color: var(--soft); font-size: 13px; line-height: 1.5; }
.heat text { font-size: 11px; fill: var(--words); } .heat .h { fill: var(--shade); }
.heat .h0 { fill: var(--blue); opacity: .35; } .heat .h1 { fill: var(--blue); } .heat .h2 { fill: var(--orange); } .heat .h3 { fill: var(--bound); }
.matrix { max-height: 80vh; overflow: auto; } .matrix table { width: auto; }
.matrix thead th { position: sticky; top: 0; background: var(--card); vertical-align: bottom; z-index: 1; }
.matrix th.turned { padding: 6px 2px; } .matrix th.turned span { writing-mode: vertical-rl; transform: rotate(180deg); }
.matrix td.m { text-align: center; padding: 4px 2px; } .matrix td.mutant { min-width: 260px; }
.rule, .matrix th.rule { border-left: 1px solid var(--line); }
.dot { display: inline-block; min-width: 20px; border-radius: 5px; font-size: 12px; font-weight: 650; }
.figures.tables { align-items: start; margin-bottom: 14px; } .figures.tables .scroll + .scroll { margin-top: 14px; }
.problem { margin: 0 0 12px; }
.problem ul { margin: 6px 0 0; padding-left: 20px; }
.replay { display: flex; gap: 8px; align-items: flex-start; margin: 6px 0 0; }
.replay code { flex: 1 1 auto; min-width: 0; background: var(--shade); border-radius: 6px; padding: 4px 8px; user-select: all; }
.replay button { flex: none; font: inherit; font-size: 12px; border: 1px solid var(--line); background: var(--card); color: var(--ink); border-radius: 6px; padding: 3px 10px; cursor: pointer; display: none; }
.script .replay button { display: block; }
.elements { display: grid; gap: 10px; }
.element dl { display: grid; grid-template-columns: repeat(4, minmax(0, 1fr)); gap: 2px 16px; margin: 6px 0 0; }
.element dt { color: var(--soft); font-size: 12px; } .element dd { margin: 0; }
.element dl > div { min-width: 0; overflow-wrap: anywhere; }
.head { display: flex; flex-wrap: wrap; gap: 4px 10px; align-items: baseline; }
details > summary { cursor: pointer; color: var(--link); margin: 8px 0; }
footer { margin-top: 48px; color: var(--soft); font-size: 13px; border-top: 1px solid var(--line); padding-top: 12px; }
@media (max-width: 760px) {
  main { padding: 18px 14px 48px; }
  .headline { font-size: 24px; }
  .tiles { grid-template-columns: repeat(3, 1fr); } .tile { padding: 8px 10px; } .tile b { font-size: 22px; }
  .figures { columns: 1; } .figures.tables { grid-template-columns: minmax(0, 1fr); }
  figure { padding: 12px 10px; }
  dl.answers > div { grid-template-columns: minmax(0, 1fr); gap: 0; }
  dl.facts { grid-template-columns: 1fr; gap: 0; } dl.facts dd { margin: 0 0 6px; }
  .element dl { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .scroll.kernels { overflow: visible; background: none; border: 0; }
  .kernels thead { display: none; }
  .kernels table, .kernels tbody { display: block; }
  .kernels tr { display: grid; grid-template-columns: repeat(3, 1fr); gap: 2px 8px; background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 10px 12px; margin: 0 0 10px; }
  .kernels tr.operator { display: block; background: none; border: 0; padding: 6px 0 0; margin: 0 0 6px; }
  .kernels tbody tr.operator th { display: block; background: none; border: 0; padding: 0; font-size: 15px; }
  .kernels td, .kernels tbody tr + tr td, .kernels td.name { display: block; width: auto; min-width: 0; border: 0; padding: 0; text-align: left; white-space: normal; }
  .kernels td::before { display: block; color: var(--soft); font-size: 11px; font-weight: 400; }
  .kernels td.wide { grid-column: 1 / -1; }
}
@media print { .replay button, nav { display: none; } figure, .card { break-inside: avoid; } }
)css";

inline constexpr std::string_view html_script = R"js(
document.documentElement.classList.add("script");
document.addEventListener("click", function (event) {
  var button = event.target.closest(".replay button");
  if (!button) return;
  var code = button.parentNode.querySelector("code"), range = document.createRange(), selection = window.getSelection();
  range.selectNodeContents(code); selection.removeAllRanges(); selection.addRange(range);
  var done = function () { button.textContent = "Copied"; setTimeout(function () { button.textContent = "Copy"; }, 1200); };
  if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(done, function () {});
  else { document.execCommand("copy"); done(); }
});
)js";

}  // namespace attest
