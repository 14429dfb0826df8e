import { type Client, clientWith } from './events.ts';
import type { Platform } from './platform.ts';

/** A client of a platform with a tenant's own key. */
export interface TenantClient extends Client {
  readonly name: string;
  readonly apiKey: string;
}

/** Creates a tenant and a key with all of the tenant's scopes. */
export async function createTenant(platform: Platform, name: string): Promise<TenantClient> {
  const post = async (route: string, body: object): Promise<Record<string, unknown>> => {
    const response = await platform.fetch(route, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${route}: ${response.status} ${await response.text()}`);
    return (await response.json()) as Record<string, unknown>;
  };
  await post('/v1/tenants', { name });
  const apiKey = String((await post(`/v1/tenants/${name}/keys`, { name: 'all', scopes: ['admin'] })).apiKey);
  return { name, apiKey, ...clientWith(platform.url, apiKey) };
}

/** Invokes without waiting; returns the invocation's id. */
export async function submit(client: Client, name: string, input: unknown): Promise<string> {
  const response = await client.fetch(`/v1/functions/${name}/invocations`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', prefer: 'respond-async' },
    body: JSON.stringify(input),
  });
  if (response.status !== 202) throw new Error(`${response.status} ${await response.text()}`);
  return ((await response.json()) as { id: string }).id;
}
