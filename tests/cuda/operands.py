"""Registers that a matrix instruction still reads when something else is written to them:
    cuobjdump -sass LIBRARY | python3 tests/cuda/operands.py
Hopper's wgmma reads a left operand from registers after it is issued, until its group is waited for; ptxas 13.0 was seen to
reuse such registers before (gpu_checks/kernels/cuda/wgmma.cuh, pin). Instructions are read in the order of their addresses,
not along branches. A line for each function with such writes; exit status 1 if there is one, 2 if a listing had no wgmma."""
import re
import sys


def written(operation, first):
    """The registers that an instruction writes."""
    found = re.fullmatch(r"R(\d+)(?:\.\w+)*", first.strip())
    if not found or operation.startswith(("HGMMA", "ST", "RED", "BAR")):
        return set()
    wide = 4 if ".128" in operation or (operation.startswith("LDSM") and operation.endswith(".4")) else \
        2 if ".64" in operation or "WIDE" in operation else 1
    return set(range(int(found[1]), int(found[1]) + wide))


def search(lines):
    """How many wgmma there are, and (function, address, instruction) of every write to a register that one still reads."""
    products, writes, function, groups, issued = 0, [], "", [], set()
    for line in lines:
        if found := re.search(r"Function : (\S+)", line):
            function, groups, issued = found[1], [], set()
        found = re.match(r"\s*/\*([0-9a-f]{4,5})\*/\s+(?:@!?U?P\w+\s+)?(\S+)\s*(.*?);", line)
        if not found:
            continue
        address, operation, operands = found.groups()
        arguments = operands.split(",")
        if operation.startswith("HGMMA"):
            products += 1
            if left := re.fullmatch(r"R(\d+)", arguments[1].strip()):
                issued |= set(range(int(left[1]), int(left[1]) + 4))
            if "gsb0" in operands:
                groups.append(issued)
                issued = set()
        elif operation.startswith("WARPGROUP.DEPBAR"):
            pending = int(arguments[1], 16)
            groups = groups[len(groups) - pending:] if pending else []
        elif written(operation, arguments[0]) & issued.union(*groups):
            writes.append((function, address, operation + " " + operands))
    return products, writes


control = """Function : control
/*0010*/ HGMMA.64x128x16.F32.BF16 R24, R88, gdesc[UR4].tnspB, R24, gsb0 ;
/*0020*/ IMAD R90, R4, 0x10, R5 ;
/*0030*/ WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
/*0040*/ IMAD R91, R4, 0x10, R5 ;""".split("\n")
assert [write[1] for write in search(control)[1]] == ["0020"], "the control is not seen"

count, found = search(sys.stdin)
for name in dict.fromkeys(write[0] for write in found):
    own = [write for write in found if write[0] == name]
    print(f"{name}: {len(own)} writes, the first at {own[0][1]}: {own[0][2]}")
print(f"{count} matrix instructions, {len(found)} writes to registers that one still reads")
sys.exit(2 if count == 0 else 1 if found else 0)
