/**
 * True when a page of this site sent the form, by headers that a page cannot forge. If the browser sends `Sec-Fetch-Site` (over https, and to
 * localhost), that header decides; otherwise `Origin` must name this host. A request with neither is refused: every browser sends one.
 */
export function isSameOrigin(request: Request): boolean {
  const site = request.headers.get('sec-fetch-site');
  if (site !== null) return site === 'same-origin';
  const origin = request.headers.get('origin');
  // Compare only the host: behind a proxy that terminates TLS the scheme differs.
  return origin !== null && URL.canParse(origin) && new URL(origin).host === new URL(request.url).host;
}
