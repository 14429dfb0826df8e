/**
 * True when a page of this site sent the form. Headers that a page cannot forge decide: `Sec-Fetch-Site` if the browser sends it (over https, and to
 * localhost), otherwise `Origin`, which must name this host. A request with neither header is refused: every browser sends one of them.
 */
export function isSameOrigin(request: Request): boolean {
  const site = request.headers.get('sec-fetch-site');
  if (site !== null) return site === 'same-origin';
  const origin = request.headers.get('origin');
  // Compare only the host: behind a proxy that terminates TLS the scheme differs.
  return origin !== null && URL.canParse(origin) && new URL(origin).host === new URL(request.url).host;
}
