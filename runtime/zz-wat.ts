import { watComponent } from '/work/main/runtime/testing/wat.ts';
import { testArtifact } from '/work/main/runtime/testing/components.ts';
import { ModuleCache, loadProgram } from '/work/main/runtime/pool/artifacts.ts';
import { compileWorld } from '/work/main/runtime/lowering/compile.ts';
import { instantiate } from '/work/main/runtime/lowering/instance.ts';
import { SliceRunner } from '/work/main/runtime/lowering/slice-runner.ts';
import { world } from '/work/main/wit/generated/world.ts';
const ok=(val)=>({tag:'ok',val});
const H=new Proxy({}, {get:(_t,i)=>new Proxy({}, {get:(_t2,f)=>(ctx,...a)=>{ console.log('   host',String(i),String(f),...a); if (String(f).includes('synchronize')) return new Promise(r=>setTimeout(r,5,ok(undefined))); if (f==='send') return ok(undefined); return {}; } })});
const compiled=compileWorld(world,H as any);
export async function tryWat(name,wat,opts={}) {
  let c; try { c=await watComponent(wat); } catch(e) { console.log(name,'COMPONENT',String(e.message??e).slice(0,300)); return; }
  let a; try { a=await testArtifact(c, opts.pages??1024); } catch(e) { console.log(name,'ARTIFACT',String(e.message).slice(0,400)); return; }
  let p; try { p=await loadProgram(a,new ModuleCache()); } catch(e) { console.log(name,'LOAD',e.message); return; }
  const t=performance.now(); let e; try { e=instantiate(p,compiled,{slices:new SliceRunner(),cpuLimitMs:300}); } catch(e2) { console.log(name,'INSTANTIATE',e2.message, (performance.now()-t).toFixed(1)); return; }
  let gap=0,last=performance.now(); const b=setInterval(()=>{const n=performance.now(); gap=Math.max(gap,n-last); last=n;},1);
  const r=await Promise.race([e.start('hi'), new Promise(r=>setTimeout(r,3000,'HANG'))]); clearInterval(b);
  console.log(name,'→', r==='HANG'?r: r.kind==='returned'?[r.ok,r.text]:[r.trap.code,r.trap.message],'inst', 'gap',gap.toFixed(1),'ms',(performance.now()-t).toFixed(1), 'plan', p.plan.entry.form, 'handles', e.guest.held);
}
