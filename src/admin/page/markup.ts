/** What stands on the status page before its script has asked for anything. */

export const MARKUP = `
<header>
<h1>org-access-proxy</h1>
<p><strong id="state" role="status" data-state="away">Asking</strong> <span id="program" class="quiet"></span></p>
<ul id="checks"></ul>
<noscript><p>This page needs JavaScript. <a href="/status">/status</a> says the same as JSON.</p></noscript>
</header>
<main>
<section class="tiles" aria-label="At a glance">
<div class="card tile" id="tile-requests"><h2>Requests</h2><p class="figure">–</p><ul class="notes quiet"></ul></div>
<div class="card tile" id="tile-latency"><h2>Latency</h2><p class="figure">–</p><ul class="notes quiet"></ul></div>
<div class="card tile" id="tile-errors"><h2>Errors</h2><p class="figure">–</p><ul class="notes quiet"></ul></div>
<div class="card tile" id="tile-tokens"><h2>Tokens</h2><p class="figure">–</p><ul class="notes quiet"></ul></div>
</section>
<section class="plots" aria-label="The last minutes">
${plot('requests', 'Requests')}
${plot('latency', 'Latency')}
${plot('lookups', 'Token lookups')}
</section>
<section class="card">
<div class="head"><h2>Orgs</h2><input id="search" type="search" placeholder="Find an Org" aria-label="Find an Org" hidden><span id="orgs-count" class="quiet"></span></div>
<table id="orgs-table" hidden>
<thead><tr><th scope="col">Org</th><th scope="col">Token</th><th scope="col">Age of assumed lifetime</th><th scope="col">Last refused</th></tr></thead>
<tbody id="orgs"></tbody>
</table>
<p id="orgs-note" class="quiet"></p>
</section>
<section class="card">
<div class="head"><h2>Last errors</h2></div>
<ul id="errors"></ul>
<p id="errors-note" class="quiet"></p>
</section>
</main>
<footer class="quiet">
<p>The same for programs: <a href="/status">/status</a>, <a href="/metrics">/metrics</a>, <a href="/readyz?verbose">/readyz?verbose</a>.</p>
<p>To drop the token of an Org: <code id="purge"></code></p>
</footer>
`

function plot(id: string, title: string): string {
  return `
<figure class="card plot" id="${id}">
<figcaption class="head"><h2>${title}</h2><span class="quiet moment"></span></figcaption>
<div class="frame">
<ul class="ticks"></ul>
<svg viewBox="0 0 300 100" preserveAspectRatio="none" role="img"></svg>
<span class="empty">nothing</span>
</div>
<ul class="legend"></ul>
</figure>`
}
