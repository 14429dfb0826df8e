import type { Hono } from 'hono';
import { etag } from 'hono/etag';
import type { AppEnv } from '../../context.ts';
import { SCRIPT } from './script.ts';
import { ICON, STYLE } from './style.ts';

const ASSETS = [
  ['style.css', 'text/css; charset=utf-8', STYLE],
  ['live.js', 'text/javascript; charset=utf-8', SCRIPT],
  ['icon.svg', 'image/svg+xml', ICON],
] as const;

/** Files that pages load. They need no key; `no-cache` and the ETag make the browser ask each time whether they changed. */
export function assetRoutes(dashboard: Hono<AppEnv>): void {
  dashboard.use('/assets/*', etag());
  for (const [name, type, text] of ASSETS)
    dashboard.get(`/assets/${name}`, (c) => c.body(text, 200, { 'content-type': type, 'cache-control': 'no-cache' }));
}
