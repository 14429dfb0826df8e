import type { Reach } from '../addresses/reach.ts';

const MAX_URL_BYTES = 2048;

/**
 * Checks the URL of a webhook as far as its text allows; null when it is valid. The IP addresses of its host name are
 * checked when the webhook is sent.
 */
export function webhookFault(text: string, tenant: string, reach: Reach): string | null {
  if (Buffer.byteLength(text) > MAX_URL_BYTES) return `it has more than ${MAX_URL_BYTES} bytes`;
  if (!URL.canParse(text)) return 'it is not an absolute URL';
  const url = new URL(text);
  if (url.protocol !== 'https:' && url.protocol !== 'http:')
    return `${url.protocol} is not a protocol of webhooks; use https:`;
  if (url.username !== '' || url.password !== '') return 'it holds credentials; check the signature instead';
  // The operator has allowed this private host for the tenant, so the checks below do not apply.
  if (reach.trusts(url, tenant)) return null;
  if (url.protocol === 'http:') return 'it is not https';
  if (reach.refuses(url, tenant)) return `${url.hostname} is not a public address outside this machine`;
  if (/(^|\.)localhost\.?$/.test(url.hostname)) return 'localhost is this machine';
  return null;
}
