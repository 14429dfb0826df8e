import { quotaLabel } from '#scheduler/quotas/names.ts';
import type { QuotaStatus } from '../../resources/quotas.ts';
import { quotaAmount, until } from '../html/format.ts';
import { type Html, html, NONE } from '../html/html.ts';
import { bar, empty } from '../html/parts.ts';

/** A bar for the use of each limit, with the time of its reset. */
export function quotaBars(quotas: readonly QuotaStatus[], now: number): Html {
  if (quotas.length === 0)
    return empty('Nothing limits this tenant.', html`An operator sets limits with <code>pie quota set</code>.`);
  return html`<ul class="quota">${quotas.map((status) => quotaBar(status, now))}</ul>`;
}

function quotaBar({ quota, function: fn, limit, used, resetsAt, source, override }: QuotaStatus, now: number): Html {
  const label = fn === null ? quotaLabel(quota) : `${quotaLabel(quota)}, ${fn}`;
  const amount = `${quotaAmount(quota, used)} of ${quotaAmount(quota, limit)}`;
  const sourceText = { default: 'Default', tenant: 'Set for this tenant', override: 'Override' }[source];
  const overrideNote =
    override === undefined
      ? NONE
      : html`<small class="muted">By ${override.author}, ends ${until(override.expiresAt, now)}${override.reason === '' ? NONE : html`: ${override.reason}`}</small>`;
  return html`<li><div class="line"><strong>${label}</strong><span>${amount}</span></div>
${bar(limit === 0 ? 1 : used / limit, `${label}: ${amount}`)}
<div class="line"><small>${sourceText}</small><small>${resetsAt === null ? 'Held now' : html`Resets ${until(resetsAt, now)}`}</small></div>${overrideNote}</li>`;
}
