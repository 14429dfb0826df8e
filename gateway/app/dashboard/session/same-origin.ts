/**
 * Whether a form was sent by a page of this very site, from what the browser says and a page cannot forge. `Sec-Fetch-Site` decides where
 * it is sent (https and localhost); elsewhere `Origin` must name this host. A request with neither is refused: every browser sends one.
 */
export function isSameOrigin(request: Request): boolean {
  const site = request.headers.get('sec-fetch-site');
  if (site !== null) return site === 'same-origin';
  const origin = request.headers.get('origin');
  // Only the host: behind a proxy that ends TLS the scheme differs.
  return origin !== null && URL.canParse(origin) && new URL(origin).host === new URL(request.url).host;
}
