"""MATH: three rules for whether an output has the right answer, which differ by points.

===================  ==========================================  ===============================================
score                what is read out of the output              when it is right
===================  ==========================================  ===============================================
``hendrycks_exact``  between the first and the last ``$``        same text, after Hendrycks's normalisation
``minerva_exact``    after "Final Answer: The final answer is"   same text after Minerva's normalisation, or the
                                                                 difference simplifies to zero
``math_verify``      the last formula or number that the         ``verify`` of that library says so
                     math-verify library can read
===================  ==========================================  ===============================================

Never compare one with another. ``text`` and ``grade`` have the exact rules.
"""
