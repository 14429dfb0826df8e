import { createHmac, randomBytes } from 'node:crypto';

/** Precedes a secret's base64 text, as Standard Webhooks requires. */
const PREFIX = 'whsec_';
const SECRET_BYTES = 32;

export function newWebhookSecret(): string {
  return `${PREFIX}${randomBytes(SECRET_BYTES).toString('base64')}`;
}

/**
 * The headers that prove to a receiver that a webhook is recent and comes from Pie (Standard Webhooks 1.0: HMAC-SHA256
 * of `id.timestamp.body`). Receivers should refuse timestamps that are more than five minutes off, and repeated ids.
 *
 * @param id the same for every attempt at one notification.
 * @param nowMs time of this attempt.
 */
export function signedHeaders(secret: string, id: string, nowMs: number, body: string): Record<string, string> {
  const key = Buffer.from(secret.slice(PREFIX.length), 'base64');
  const timestamp = Math.floor(nowMs / 1000);
  const signature = createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64');
  return { 'webhook-id': id, 'webhook-timestamp': String(timestamp), 'webhook-signature': `v1,${signature}` };
}
