import itertools, torch, numpy as np, sys
import models
from models import *
torch.manual_seed(0)
def shake(net):
    for m in net.modules():
        if isinstance(m,(BNAct,RMS)):
            m.weight.data.uniform_(.5,1.5)
            if isinstance(m,BNAct): m.bias.data.normal_(0,.5)
            m.momentum=1.0
        elif isinstance(m,nn.Conv2d) and m.bias is not None: m.bias.data.normal_(0,.5)
def law(cfg,dtype):
    torch.manual_seed(1); net=build(cfg); shake(net); net=net.to(dtype)
    g=lambda b,n: torch.randn(b,3,n,n,dtype=dtype)
    net.train()
    for _ in range(4): net([g(4,n) for n in net.ladder])
    net.eval()
    x=g(3,32); worst=0
    low=lambda x,u,n: torch.einsum('ai,bcij,dj->bcad',torch.from_numpy(lowering(x.shape[-1],u,n)).to(dtype),x,torch.from_numpy(lowering(x.shape[-1],u,n)).to(dtype))
    with torch.no_grad():
        L=net.ladder; none=lambda k,t:[t if i==k else None for i in range(len(L))]
        top=net(none(0,x))
        for u in (24,16,12,10,8,6,4):
            k=entry_index(L,u); a=net(none(k,low(x,u,L[k]))); b=net(none(0,low(x,u,L[0])),entry=k)
            worst=max(worst,float((a-b).norm()/(b-b.mean()).norm()))
        m=float((net(none(len(L)-1,low(x,8,8)),) -top).norm()/(top-top.mean()).norm())
    return worst,m
base={"stages":[{"size":8,"width":16,"blocks":1},{"size":4,"width":24,"blocks":1,"se":True}]}
cases=[]
for form in ("diff","zp","dact"):
    for down in ("perfect","perfect3","blur","strided","s2d"): cases.append((f"{form} {down}",[32,16,8],dict(form=form,down=down)))
cases+= [("paper",[32,16,8],dict(form="paper",down="perfect")),
 ("diff se scale bottleneck",[32,16,8],dict(form="diff",se=True,scale=True,block="bottleneck",groups=2,act="silu")),
 ("diff single",[32,16,8],dict(form="diff",block="single",blocks=2)),
 ("dact perfect up",[32,16,8],dict(form="dact",up="perfect",act="silu")),("dact bilinear",[32,16,8],dict(form="dact",up="bilinear",context_kernel=3,context=8,context_blocks=2)),
 ("dact ladder5",[32,24,16,12,8],dict(form="dact",down="perfect3",up="bilinear")),("diff ladder5",[32,24,16,12,8],dict(form="diff",down="perfect")),
 ("zp expansion 2",[32,16,8],dict(form="zp",expansion=2,blocks=2,up="bilinear")),("zero blocks dact",[32,16,8],dict(form="dact",blocks=0)),("diff 0",[32,16,8],dict(form="diff",blocks=0))]
for name,L,lv in cases:
    lvs=[{**lv,"width":w} for w in ([12,16] if len(L)==3 else [12,12,16,16])]
    for bl in ((False,True) if name.startswith("diff strided") else (False,)):
        cfg={"ladder":L,"levels":lvs,"base":{**base,"level_bn":bl}}
        a,m=law(cfg,torch.float64); b,_=law(cfg,torch.float32)
        print(f"{name:28s} level_bn={bl} f64 {a:.1e} f32 {b:.1e} levels matter {m:.2f}", "OK" if a<1e-10 and b<1e-4 and m>1e-2 else "FAIL")
r=build({"kind":"resnet","ladder":[32]}); print("resnet18", multiply_adds(r), sum(p.numel() for p in r.parameters())/1e6)
r=build({"kind":"resnet","ladder":[32,24,16,12,8]}); print("switchable", multiply_adds(r), sum(p.numel() for p in r.parameters())/1e6)
for f in ("perfect",): # against the library's kernels
    sys.path.insert(0,'..')
    import arrn
    x=torch.randn(2,3,32,32,dtype=torch.float64)
    for m in (24,16,8,7): print("perfect vs library",m,float((arrn.signal.resample(x,m,arrn.signal.kernel('perfect'))-Resample(perfect(32,m))(x)).abs().max()))
    y=torch.randn(2,3,16,16,dtype=torch.float64); print("up",float((arrn.signal.resample(y,32,arrn.signal.kernel('perfect'))-Resample(perfect(16,32))(y)).abs().max()))
    print("poor",float((arrn.signal.resample(x,16,arrn.signal.kernel('poor'))-Resample(gaussian(32,16))(x)).abs().max()))
