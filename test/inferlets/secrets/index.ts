/** Uses a secret and leaks it in different places. */
import { defineInferlet, environment } from '@pie/inferlet';

export const run = defineInferlet(async ({ act = '' }: { act?: string }) => {
  const token = environment.require('TOKEN');
  if (act === 'log') {
    console.log('the token', token, { token });
    console.warn(token.slice(0, 7), token.slice(7));
    console.log('the zone', environment.get('ZONE'));
  }
  if (act === 'fail') throw new Error(`refused with ${token} in ${environment.get('ZONE')}`);
  return { length: token.length, names: environment.names(), zone: environment.get('ZONE')?.length };
});
