import type { Hono } from 'hono';
import { etag } from 'hono/etag';
import type { AppEnv } from '../context.ts';
import { DASHBOARD_SCRIPT, DASHBOARD_STYLE } from '../generated/browser.ts';

const ICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><circle cx="12" cy="12" r="10" fill="none" stroke="#b5651d" stroke-width="2.4"/><path d="M12 12V3.2A8.8 8.8 0 0 1 20.8 12z" fill="#b5651d"/></svg>`;

const ASSETS = [
  ['style.css', 'text/css; charset=utf-8', DASHBOARD_STYLE],
  ['live.js', 'text/javascript; charset=utf-8', DASHBOARD_SCRIPT],
  ['icon.svg', 'image/svg+xml', ICON],
] as const;

/** Serves the files that pages load, without a key. `no-cache` and the ETag make the browser ask each time whether a file has changed. */
export function assetRoutes(dashboard: Hono<AppEnv>): void {
  dashboard.use('/assets/*', etag());
  for (const [name, type, text] of ASSETS)
    dashboard.get(`/assets/${name}`, (c) => c.body(text, 200, { 'content-type': type, 'cache-control': 'no-cache' }));
}
